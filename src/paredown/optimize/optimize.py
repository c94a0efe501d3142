"""`paredown optimize`: tries, verifies and times every format on this machine, and writes the
best."""

import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.recipe import Recipe
from paredown.compress.recipe_names import find_recipe
from paredown.compress.steps import RecoverStep
from paredown.errors import ConfigError, OutputError, UnsupportedError
from paredown.evaluate.pictures.picture import require_matplotlib
from paredown.evaluate.texts.calibration_text import CalibrationConfig, calibration_texts
from paredown.evaluate.texts.validation_text import choose_validation_text
from paredown.executors.load import load_executor
from paredown.executors.run_options import RunOptions
from paredown.jobs.calibration_windows import calibration_windows
from paredown.jobs.float_source import FloatSource, FromQuantized, float_source
from paredown.jobs.recipe_texts import recipe_texts
from paredown.jobs.run_recipe import run_recipe
from paredown.jobs.staged_recipe import check_stages
from paredown.jobs.verifier import Verifier
from paredown.jobs.verify_config import VerifyConfig
from paredown.kernels.probe import measure_machine
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.files.output_folder import check_output_folder, output_folder
from paredown.models.text.tokenizer import Tokenizer
from paredown.optimize.bounds import Bounds, within_default
from paredown.optimize.candidates import (
    Candidates,
    SearchSetup,
    Skipped,
    measure_candidates,
    search_pages,
)
from paredown.optimize.choose import choose
from paredown.optimize.deadline import Deadline
from paredown.optimize.front import mark_front
from paredown.optimize.mixed_recipes import is_mixed, mixed_recipes
from paredown.optimize.optimize_result import OptimizeResult
from paredown.optimize.output_share import output_note
from paredown.optimize.plot import draw_front
from paredown.optimize.pruned_candidates import pruned_words
from paredown.optimize.report import render_report
from paredown.optimize.require_predictions import require_predictions
from paredown.optimize.search import SearchNotes, search
from paredown.optimize.sensitivity import WINDOW_TOKENS
from paredown.optimize.trained_candidates import trained_recipes
from paredown.progress import OnProgress
from paredown.spec.machine import Machine
from paredown.stopped import StoppedError

DEFAULT_TOKENS = 8192
DEFAULT_ROUNDS = 11
# A seventh of the windows that a single compression calibrates on. A search makes several
# compressions, and at widths that lose little the codes are as good.
DEFAULT_SAMPLES = 18
_NO_BOUNDS = Bounds()
_CALIBRATION = CalibrationConfig(num_samples=DEFAULT_SAMPLES)
# The share of a search's time spent on finding widths for mixed recipes.
_MIXED_SHARE = 0.3
# The share of a search's time that one pass of the original over the text may take.
_TEXT_SHARE = 0.03
LEAST_TOKENS = 1024
# The number of tokens on which parts of a model are measured.
PARTS_TOKENS = 1024


@dataclass(frozen=True, kw_only=True)
class OptimizeConfig:
    """`output` and `report` are folders to write, which must not exist; None writes none. `bounds`
    without any limit allow the default loss of perplexity. `formats` are recipes; None searches
    near the bounds. `minutes` None means no deadline. With `prune` the search also removes weights,
    and trains smaller models too with `recover`. `train_minutes` trains the codes of candidates
    with few bits, each for so long."""

    output: Path | None = None
    report: Path | None = None
    bounds: Bounds = _NO_BOUNDS
    minutes: float | None = None
    formats: tuple[str, ...] | None = None
    num_tokens: int = DEFAULT_TOKENS
    text: Path | None = None
    num_rounds: int = DEFAULT_ROUNDS
    num_threads: int | None = None
    calibration: CalibrationConfig = _CALIBRATION
    prune: bool = False
    recover: RecoverStep | None = None
    train_minutes: float | None = None


_CONFIG = OptimizeConfig()


def optimize(
    model: Checkpoint | FromQuantized | Path | str | None = None,
    config: OptimizeConfig = _CONFIG,
    on_progress: OnProgress | None = None,
) -> OptimizeResult:
    """Tries every format on a checkpoint, measures each, and writes the best with its proof.

    The written checkpoint is measured once more beside the original; verification.json is in
    `config.output` when that appears. Each output appears whole or not at all. Without any output
    in `config`, only the result has the figures.

    `model`        folder or .gguf file; None is the model that comes with the package; a quantized
                   model must be inside FromQuantized(model=...), and the proof says so
    `config`       what to try, what may be lost, and where to write
    `on_progress`  called with the current activity and the share of it that is done

    Before anything is measured, raises ConfigError for a bad option, OutputError for outputs that
    exist, and UnsupportedError for a report that cannot be drawn. Also raises UnsupportedError for
    a model that is already quantized, and if no format is left.
    """
    report_share = on_progress or (lambda what, share: None)
    _check(config)
    if config.report is not None:
        require_matplotlib("give --no-report")
    deadline = Deadline(config.minutes)
    with float_source(model, on_progress) as source:
        result = _optimize(source, config, deadline, report_share)
    if config.report is not None:
        report_share("drawing", 1.0)
        write_report(result, config.report)
    return result


def _optimize(
    source: FloatSource, config: OptimizeConfig, deadline: Deadline, report_share: OnProgress
) -> OptimizeResult:
    """Runs the search and writes the best candidate."""
    original, floats = source.original, source.floats
    require_predictions(original, "optimize")
    report_share("measuring this machine", 0.0)
    machine = measure_machine(config.num_threads)
    start = _MIXED_SHARE if any(map(is_mixed, config.formats or ())) else 0.0
    recipes, skipped = _recipes(floats, config.formats or (), report_share)

    def rest(what: str, share: float) -> None:
        report_share(what, start + (1 - start) * share)

    num_tokens = _affordable_tokens(config, floats, machine)
    measured_on = VerifyConfig(text=config.text, num_tokens=num_tokens)
    text = measured_on.choose_text(original, config.num_threads)
    wanted = None if config.formats is None else recipes
    texts = recipe_texts(source, wanted, config.calibration, config.num_threads)
    one_text = None if texts.calibration is None else _one_text(original, config)
    bounds = within_default(config.bounds)
    with tempfile.TemporaryDirectory(prefix="paredown-") as kept:
        setup = SearchSetup(
            source=floats,
            original=original,
            notes=source.notes,
            executor=load_executor(
                original,
                RunOptions(
                    num_pages=search_pages(floats.spec, text, bounds),
                    threads=ThreadPlan.resolve(config.num_threads),
                ),
            ),
            text=text,
            machine=machine,
            folder=Path(kept),
            texts=texts,
            num_rounds=config.num_rounds,
            num_threads=config.num_threads,
            one_text=one_text,
            bounds=bounds,
            prune=config.prune,
            recover=config.recover,
            train_minutes=config.train_minutes,
        )
        return _search(setup, recipes, skipped, config, deadline, rest)


def _one_text(original: Checkpoint, config: OptimizeConfig) -> Callable[[], Calibration] | None:
    """Returns a function that cuts windows from the first of several calibration texts; None if
    there is at most one."""
    texts = calibration_texts(config.calibration, Tokenizer.open(original.path))
    if len(texts) < 2:
        return None
    alone = replace(config.calibration, text=texts[0])
    return lambda: calibration_windows(original, alone, config.num_threads)


def _affordable_tokens(config: OptimizeConfig, source: Checkpoint, machine: Machine) -> int:
    """Returns the number of tokens of the text: fewer than asked for if predicting them would take
    too long."""
    if config.minutes is None or config.formats is not None:
        return config.num_tokens
    flops = 2 * (source.spec.num_active_linear_parameters() + source.spec.vocab_size)
    per_second = machine.fp32_flops_per_s / flops
    affordable = int(_TEXT_SHARE * config.minutes * 60 * per_second)
    return min(config.num_tokens, max(affordable, LEAST_TOKENS))


def _search(
    setup: SearchSetup,
    recipes: Sequence[Recipe],
    skipped: Sequence[Skipped],
    config: OptimizeConfig,
    deadline: Deadline,
    on_progress: OnProgress,
) -> OptimizeResult:
    measured = Candidates(skipped=[*skipped])
    notes = SearchNotes()
    try:
        if config.formats is None:
            parts_text = choose_validation_text(
                setup.original, config.text, min(PARTS_TOKENS, config.num_tokens), WINDOW_TOKENS
            )
            search(setup, parts_text, deadline, measured, notes, on_progress)
        else:
            measure_candidates(setup, recipes, measured, on_progress)
    except StoppedError as error:
        if config.report is None or not measured.measurements:
            raise
        notes.stopped = str(error)
        notes.exit_code = error.exit_code
    _require_candidates(measured)
    assert measured.reference is not None
    choice = choose(measured.measurements, measured.reference, setup.bounds)
    chosen, verifier = choice.chosen, None
    if chosen is not None and config.output is not None and notes.stopped is None:
        on_progress(f"writing {chosen.name}", 1.0)
        recipe = measured.recipes[chosen.name]
        verifier = _write(setup, config.output, recipe, measured.notes.get(recipe.name, ()))
    written = verifier is not None
    return OptimizeResult(
        model=setup.original.path.name,
        candidates=mark_front(measured.measurements),
        reference=measured.reference,
        skipped=measured.skipped,
        not_tried=notes.not_tried,
        mixes=notes.mixes,
        pruned=pruned_words(measured.measurements, measured.recipes),
        stopped=notes.stopped,
        exit_code=notes.exit_code,
        clamped=measured.clamped,
        notes=measured.notes,
        machine=setup.machine,
        protocol=setup.text.protocol,
        calibration=None if setup.calibration is None else setup.calibration.source,
        text_choice=notes.text_choice,
        note=output_note(setup.source.spec) if config.formats is None else None,
        bounds=setup.bounds,
        chosen=None if chosen is None else chosen.name,
        nearest=None if choice.nearest is None else choice.nearest.name,
        missed=choice.missed,
        verification=None if verifier is None else verifier.verification,
        not_verified=None if verifier is None else verifier.skipped,
        output=config.output if written else None,
        report=config.report,
    )


def _recipes(
    source: Checkpoint, names: Sequence[str], on_progress: OnProgress
) -> tuple[list[Recipe], list[Skipped]]:
    """Returns the recipes of the names, in their order; mixed ones that the model cannot have are
    skipped."""
    found: dict[str, Recipe] = {}
    skipped = []
    if mixed := [name for name in names if is_mixed(name)]:
        try:
            recipes = mixed_recipes(
                source,
                mixed,
                lambda done, total: on_progress(
                    f"finding widths for {', '.join(mixed)}", _MIXED_SHARE * done / total
                ),
            )
            found = {recipe.name: recipe for recipe in recipes}
        except UnsupportedError as error:
            reason = f"{error.what} ({error.seen})"
            skipped = [Skipped(name=name, reason=reason) for name in mixed]
    left = [name for name in names if name in found or not is_mixed(name)]
    return [found.get(name) or find_recipe(name) for name in left], skipped


def write_report(result: OptimizeResult, folder: Path) -> None:
    """Writes `front.png`, `report.html` (self-contained) and `results.json`."""
    allowed = result.bounds.max_quality_loss
    arguments = (result.candidates, result.reference, result.chosen, allowed)
    light, dark = draw_front(*arguments, dark=False), draw_front(*arguments, dark=True)
    with output_folder(folder) as partial:
        (partial / "front.png").write_bytes(light)
        html = render_report(result.as_json(), light, dark)
        (partial / "report.html").write_text(html, "utf-8")
        results = json.dumps(result.as_json(), indent=2) + "\n"
        (partial / "results.json").write_text(results, "utf-8")


def parse_formats(text: str | None) -> tuple[str, ...] | None:
    """Parses 'int8,mixed-4' into names; None stays None. Raises ConfigError for unknown ones."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if not is_mixed(name):
            find_recipe(name)
    return tuple(dict.fromkeys(names))


def _write(
    setup: SearchSetup, output: Path, recipe: Recipe, made_notes: tuple[str, ...]
) -> Verifier:
    """Writes the checkpoint with its verification.json, for which it is measured once more.
    `made_notes` are those of the candidate, if it was kept."""
    verifier = Verifier(
        setup.original,
        recipe.name,
        setup.text,
        reference=setup.executor,
        num_threads=setup.num_threads,
        notes=setup.notes,
    )
    made = setup.folder / recipe.name
    if made.is_dir():
        with output_folder(output) as partial:
            shutil.copytree(made, partial, dirs_exist_ok=True)
            verifier(partial, made_notes)
    else:
        staged = check_stages(setup.source, recipe)
        run_recipe(staged, output, texts=setup.texts, finish=verifier)
    return verifier


def _check_train_minutes(minutes: float, formats: tuple[str, ...] | None) -> None:
    if formats is not None:
        raise ConfigError(
            "--train-minutes adds candidates to a search, and --formats names all of them",
            seen=", ".join(formats),
            remedy="Leave one out; --formats takes trained recipes too: qad-int3-g64.",
        )
    trained_recipes("", minutes)


def _check(config: OptimizeConfig) -> None:
    if config.prune and config.formats is not None:
        raise ConfigError(
            "--prune adds candidates to a search, and --formats names all of them",
            seen=", ".join(config.formats),
            remedy="Leave one out; --formats takes pruned recipes too: prune-ffn-25-int4-g128.",
        )
    if config.recover is not None and not config.prune:
        raise ConfigError(
            "a recovery is for pruned candidates, and none are asked for",
            seen=config.recover.name,
            remedy="Give --prune too.",
        )
    if config.train_minutes is not None:
        _check_train_minutes(config.train_minutes, config.formats)
    limits: Sequence[tuple[str, int]] = (
        ("--formats", 1 if config.formats is None else len(config.formats)),
        ("--tokens", config.num_tokens),
        ("--rounds", config.num_rounds),
    )
    for option, value in limits:
        if value < 1:
            raise ConfigError(f"{option} must be at least one", seen=value, remedy="Give more.")
    for path in (config.output, config.report):
        if path is not None:
            check_output_folder(path)
    if config.output is not None and config.report is not None:
        output, report = config.output.resolve(), config.report.resolve()
        if report in (output, *output.parents):
            raise OutputError(
                "the folder of the report cannot be, or hold, that of the checkpoint",
                seen=f"report {config.report}, checkpoint {config.output}",
                remedy="Choose another folder for the report (--report).",
            )


def _require_candidates(measured: Candidates) -> None:
    if measured.measurements:
        return
    raise UnsupportedError(
        "this model can have none of the formats",
        seen="; ".join(f"{one.name}: {one.reason}" for one in measured.skipped),
        remedy="Give others (--formats), or the original checkpoint if this one is compressed.",
    )
