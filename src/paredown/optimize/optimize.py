"""`paredown optimize`: tries, verifies and times every format on this machine, and writes the
best."""

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.recipe import Recipe
from paredown.compress.recipe_names import find_recipe
from paredown.errors import UnsupportedError
from paredown.evaluate.pictures.picture import require_matplotlib
from paredown.evaluate.texts.calibration_text import calibration_texts
from paredown.evaluate.texts.validation_text import choose_validation_text
from paredown.executors.load import load_executor
from paredown.executors.run_options import RunOptions
from paredown.jobs.calibration_windows import calibration_windows
from paredown.jobs.float_source import FloatSource, FromQuantized, float_source
from paredown.jobs.recipe_texts import recipe_texts
from paredown.jobs.verify_config import VerifyConfig
from paredown.kernels.probe import measure_machine
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.files.output_folder import output_folder
from paredown.models.text.tokenizer import Tokenizer
from paredown.optimize.bounds import within_default
from paredown.optimize.candidates import (
    Candidates,
    SearchSetup,
    Skipped,
    measure_candidates,
    search_pages,
)
from paredown.optimize.deadline import Deadline
from paredown.optimize.finish import finish
from paredown.optimize.mixed_recipes import is_mixed, mixed_recipes
from paredown.optimize.optimize_config import OptimizeConfig, check_config
from paredown.optimize.optimize_encoder import optimize_encoder
from paredown.optimize.optimize_result import OptimizeResult
from paredown.optimize.plot import draw_front
from paredown.optimize.report import render_report
from paredown.optimize.require_one_stack import require_one_stack
from paredown.optimize.search import SearchNotes, search
from paredown.optimize.sensitivity import WINDOW_TOKENS
from paredown.progress import OnProgress
from paredown.spec.machine import Machine
from paredown.stopped import StoppedError

# The share of a search's time spent on finding widths for mixed recipes.
_MIXED_SHARE = 0.3
# The share of a search's time that one pass of the original over the text may take.
_TEXT_SHARE = 0.03
LEAST_TOKENS = 1024
# The number of tokens on which parts of a model are measured.
PARTS_TOKENS = 1024
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
    check_config(config)
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
    require_one_stack(original)
    config.bounds.check_kind(generates=original.spec.generates)
    report_share("measuring this machine", 0.0)
    machine = measure_machine(config.num_threads)
    if not original.spec.generates:
        return optimize_encoder(source, config, machine, deadline, report_share)
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
    return finish(setup, measured, notes, config, on_progress)


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
    bounds = result.bounds
    allowed = bounds.max_quality_loss
    if bounds.min_cosine is not None:
        allowed = 1 - bounds.min_cosine
    arguments = (result.candidates, result.reference, result.chosen, allowed)
    light, dark = draw_front(*arguments, dark=False), draw_front(*arguments, dark=True)
    with output_folder(folder) as partial:
        (partial / "front.png").write_bytes(light)
        html = render_report(result.as_json(), light, dark)
        (partial / "report.html").write_text(html, "utf-8")
        results = json.dumps(result.as_json(), indent=2) + "\n"
        (partial / "results.json").write_text(results, "utf-8")
