"""Measures and draws the sensitivity of a checkpoint's parts (docs/methods/sensitivity.md)."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from paredown.compress.activations import ActivationGrid, parse_grid
from paredown.compress.calibrate.activation_range import ActivationEstimator
from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.checked_recipe import check_recipe
from paredown.compress.compress import compress
from paredown.compress.cut.cut import check_cuts
from paredown.compress.cut.ffn import CutNeurons
from paredown.compress.cut.heads import CutHeads
from paredown.compress.quantize.kv_cache import KVGridDType
from paredown.compress.quantize.rtn import RTN
from paredown.compress.recipe_names import find_recipe
from paredown.compress.require_floats import require_floats
from paredown.errors import ConfigError
from paredown.evaluate.quality.task_quality import TaskTexts
from paredown.evaluate.tasks.glue import find_task
from paredown.evaluate.texts.calibration_text import CalibrationConfig
from paredown.evaluate.texts.text import EvalText
from paredown.evaluate.texts.validation_text import choose_validation_text
from paredown.jobs.calibration_windows import calibration_windows
from paredown.jobs.float_source import FromQuantized, float_source
from paredown.jobs.measured_recipe import measured_recipe
from paredown.jobs.recipe_texts import RecipeTexts
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.optimize.kv_sensitivity import measure_kv_sensitivity
from paredown.optimize.model_parts import PartKind
from paredown.optimize.point_rounding import (
    PointRounding,
    check_static,
    parse_layers,
    static_rounding,
)
from paredown.optimize.prune_sensitivity import (
    WHOLE_LAYERS,
    measure_cut_sensitivity,
    measure_layer_sensitivity,
    measure_prune_sensitivity,
)
from paredown.optimize.sensitivity import (
    WINDOW_TOKENS,
    SensitivityResult,
    SensitivityTable,
    measure_sensitivity,
    parse_format,
    parse_kinds,
)
from paredown.optimize.sensitivity_plot import check_report, write_report
from paredown.optimize.sensitivity_texts import (
    TaskConfig,
    check_generates,
    task_batches,
    task_texts,
    window_batches,
)
from paredown.progress import OnCount

DEFAULT_FORMAT = "int4-g128"
DEFAULT_PARTS = "layer,role"
DEFAULT_TOKENS = 2048
# The windows that a pruning method calibrates on here; the order of parts settles early.
_SAMPLES = 18


@dataclass(frozen=True, kw_only=True)
class SensitivityConfig:
    """`format`       the weights' format
    `parts`        kinds of parts, comma-separated (optimize/model_parts.py)
    `with_output`  whether to measure the output layer too, as a part of its own
    `activations`  a grid for the model's points ("int8-tensor"); None leaves them alone
    `ranges`       how one static scale for each point is found; None finds scales as values come
    `layers`       the layers whose points are parts ("4,5"); None makes each a part in all layers
    `task`         the task that an encoder is measured on; None predicts a text
    `kv`           a format for keys and values, layer by layer; None leaves them alone
    `prune`        a recipe that makes zeros ("wanda-50"), one that cuts neurons or heads
                   ("prune-ffn-25"), or "layers" for leaving whole layers out; None prunes nothing
    `text`         a UTF-8 file to predict; None takes the validation split of the classic books
                   under $PAREDOWN_DATA, else a text that the model samples
    `num_tokens`   how many of its tokens are predicted
    `report`       a folder for the picture and the figures; must not exist
    """

    format: str = DEFAULT_FORMAT
    parts: str = DEFAULT_PARTS
    with_output: bool = False
    activations: str | None = None
    ranges: ActivationEstimator | None = None
    layers: str | None = None
    task: TaskConfig | None = None
    kv: KVGridDType | None = None
    prune: str | None = None
    text: Path | None = None
    num_tokens: int = DEFAULT_TOKENS
    report: Path | None = None


def report_sensitivity(
    model: Checkpoint | FromQuantized | Path | str | None,
    config: SensitivityConfig,
    on_progress: OnCount | None = None,
) -> SensitivityResult:
    """Measures the cost of quantizing each part, and writes the report if one is wanted.

    Before anything is measured, raises ConfigError for an unknown format, grid, task or kind of
    parts, and for options that do not fit each other, and OutputError or UnsupportedError for a
    report that cannot be written or drawn. Raises UnsupportedError for a checkpoint that is already
    compressed or cannot have the format, and for an encoder without a task.
    """
    _check_options(config)
    spec, kinds = parse_format(config.format), parse_kinds(config.parts)
    if config.prune is not None:
        _cut_of(config.prune)
    grid = None if config.activations is None else parse_grid(config.activations)
    if config.report is not None:
        check_report(config.report)
    with float_source(model) as source:
        checkpoint = source.floats
        rounding, notes = _rounding(checkpoint, grid, config)
        text: EvalText | TaskTexts
        if config.task is not None:
            text = task_texts(checkpoint, config.task)
        else:
            check_generates(checkpoint)
            text = choose_validation_text(checkpoint, config.text, config.num_tokens, WINDOW_TOKENS)
        result = measure_sensitivity(
            checkpoint,
            text,
            spec,
            kinds,
            RTN(),
            rounding,
            on_progress,
            with_output=config.with_output,
        )
        if config.kv is not None:
            assert isinstance(text, EvalText)
            keys_and_values = measure_kv_sensitivity(checkpoint, text, config.kv, on_progress)
            result = replace(result, kv=keys_and_values)
        if config.prune is not None:
            assert isinstance(text, EvalText)
            pruned = _pruned_table(checkpoint, config.prune, text, kinds, on_progress)
            result = replace(result, pruned=pruned)
    result = replace(result, notes=(*source.notes, *notes))
    if config.report is not None:
        write_report(result, config.report)
    return result


def _check_options(config: SensitivityConfig) -> None:
    if config.task is not None:
        find_task(config.task.name)
        for option, given in (
            ("--kv", config.kv),
            ("--prune", config.prune),
            ("--head", config.with_output or None),
        ):
            if given is not None:
                raise ConfigError(
                    f"{option} is measured on the prediction of a text",
                    seen=f"{option} with --task {config.task.name}",
                    remedy="Leave one of both out.",
                )
    for option, given in (("--ranges", config.ranges), ("--layers", config.layers)):
        if given is not None and config.activations is None:
            raise ConfigError(
                f"{option} is about activations", seen=given, remedy="Give --activations, too."
            )
    if config.ranges is not None and config.activations is not None:
        check_static(parse_grid(config.activations))


def _rounding(
    checkpoint: Checkpoint, grid: ActivationGrid | None, config: SensitivityConfig
) -> tuple[PointRounding | None, tuple[str, ...]]:
    """Returns how points are rounded, and a note on where static ranges were found."""
    if grid is None:
        return None, ()
    layers = None
    if config.layers is not None:
        layers = parse_layers(config.layers, checkpoint.spec.num_layers)
    if config.ranges is None:
        return PointRounding(grid=grid, layers=layers), ()
    require_floats(checkpoint)
    decoder = Decoder.from_checkpoint(checkpoint)
    if config.task is not None:
        batches, source = task_batches(checkpoint, decoder, config.task)
    else:
        check_generates(checkpoint)
        batches, source = window_batches(decoder, _windows(checkpoint))
    rounding = static_rounding(decoder.spec, grid, config.ranges, batches, layers)
    return rounding, (f"ranges by {config.ranges} over {source}",)


def _pruned_table(
    checkpoint: Checkpoint,
    name: str,
    text: EvalText,
    kinds: Sequence[PartKind],
    on_progress: OnCount | None,
) -> SensitivityTable:
    """Returns what pruning each part costs; the recipe of that name prunes all of them first, or
    each layer alone where it cuts."""
    if name == WHOLE_LAYERS:
        return measure_layer_sensitivity(checkpoint, text, on_progress)
    cut = _cut_of(name)
    if cut is not None:
        check_cuts(checkpoint, [cut])
        return measure_cut_sensitivity(
            checkpoint, cut, name, text, _windows(checkpoint), on_progress
        )
    checked = check_recipe(checkpoint, name)
    windows = _windows(checkpoint) if checked.recipe.needs_calibration else None
    texts = RecipeTexts(calibration=windows)
    checked = measured_recipe(checked, checkpoint, texts, lambda what, share: None).checked
    with tempfile.TemporaryDirectory(prefix="paredown-") as folder:
        made = compress(checkpoint, Path(folder) / name, checked, calibration=windows)
        pruned = Checkpoint.open(made.path)
        return measure_prune_sensitivity(checkpoint, pruned, name, text, kinds, on_progress)


def _windows(checkpoint: Checkpoint) -> Calibration:
    return calibration_windows(checkpoint, CalibrationConfig(num_samples=_SAMPLES), None)


def _cut_of(name: str) -> CutNeurons | CutHeads | None:
    """Returns the cut that each layer gets alone; None for zeros and for "layers". Raises
    ConfigError for an unknown recipe, and for one whose parts cannot stand alone."""
    if name == WHOLE_LAYERS:
        return None
    recipe = find_recipe(name)
    cuts = [step.cut for step in recipe.cut_steps]
    if not cuts and not recipe.recover_steps and recipe.train_step is None:
        return None
    if len(recipe.steps) == 1 and isinstance(cuts[0], CutNeurons | CutHeads):
        return cuts[0]
    raise ConfigError(
        "parts are compared with zeros, or with one cut of neurons or heads",
        seen=name,
        remedy="Name a method that makes zeros (wanda-50), one cut (prune-ffn-25, prune-heads-25), "
        f'or "{WHOLE_LAYERS}" for leaving each layer out.',
    )
