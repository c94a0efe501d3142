"""The rows of the table of W8A8: simulated in PyTorch as published, and recipes as they run.

W8     weights of all layers, tables and the head in int8, one symmetric scale a tensor
A8     the values at all points in int8, one asymmetric static scale a tensor (arXiv 2109.12948)
token  the inputs of linear layers in int8, a symmetric dynamic scale a token
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from paredown.compress.activations import ActivationGrid, parse_grid, round_activations
from paredown.compress.calibrate.activation_range import ActivationEstimator
from paredown.engine.build_encoder import build_encoder
from paredown.evaluate.quality.simulated import PointTap, Variant
from paredown.evaluate.quality.simulated_texts import measure_text_variants
from paredown.evaluate.quality.task_quality import TaskQuality
from paredown.evaluate.tasks.glue import find_task
from paredown.evaluate.tasks.glue_file import read_glue_sets
from paredown.evaluate.tasks.measure_glue import measure_glue
from paredown.executors.run_options import RunOptions
from paredown.jobs.compress import compress_and_verify
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.points import INPUT_POINTS
from paredown.optimize.point_rounding import PointRounding, places_of, static_rounding
from paredown.optimize.sensitivity_texts import TaskConfig, task_batches, task_texts

RECIPES = ("int8", "w8a8", "w8a8-static", "smoothquant-w8a8")
_STATIC = parse_grid("int8-tensor-asym")
_WEIGHTS = parse_grid("int8-tensor")
_TOKEN = parse_grid("int8-token")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A task of a checkpoint, and how static ranges are found."""

    checkpoint: Checkpoint
    task: TaskConfig
    estimator: ActivationEstimator


def simulated_rows(
    setting: Setting, on_progress: Callable[[int, int], None]
) -> tuple[dict[str, TaskQuality], str]:
    """Returns the quality of each row, and the task and its calibration in words."""
    decoder = Decoder.from_checkpoint(setting.checkpoint)
    batches, source = task_batches(setting.checkpoint, decoder, setting.task)
    static = static_rounding(decoder.spec, _STATIC, setting.estimator, batches)
    weights = rounded_weights(decoder)
    points = static_taps(decoder, static)
    inputs = input_taps(decoder)
    variants = {
        "W8A32": Variant(weights=weights),
        "W32A8, static": Variant(taps=points),
        "W8A8, static": Variant(weights=weights, taps=points),
        "W32A8, token": Variant(taps=inputs),
        "W8A8, token": Variant(weights=weights, taps=inputs),
    }
    task = task_texts(setting.checkpoint, setting.task)
    qualities, plain = measure_text_variants(decoder, [*variants.values()], task, on_progress)
    rows = {"FP32": plain} | dict(zip(variants, qualities, strict=True))
    return rows, f"{task.protocol}; static ranges by {setting.estimator} over {source}"


def recipe_rows(setting: Setting, folder: Path) -> dict[str, TaskQuality]:
    """Compresses the checkpoint by each recipe into `folder`, and measures what is served."""
    (examples, *_) = read_glue_sets(find_task(setting.task.name), setting.task.path)
    examples = examples.first(setting.task.num_rows)
    original = build_encoder(setting.checkpoint, RunOptions())
    found = {}
    for recipe in RECIPES:
        made = folder / f"{setting.checkpoint.path.name}-{recipe}"
        if not made.exists():
            compress_and_verify(setting.checkpoint.path, made, recipe, verify=None)
        encoder = build_encoder(Checkpoint.open(made), RunOptions())
        found[recipe] = measure_glue(encoder, examples, original).model
    return found


def rounded_weights(decoder: Decoder) -> dict[str, Tensor]:
    """Returns every matrix of the model, rounded with one scale for each."""
    return {
        name: _rounded(values.data, _WEIGHTS)
        for name, values in decoder.named_parameters()
        if values.dim() == 2
    }


def static_taps(decoder: Decoder, rounding: PointRounding) -> Mapping[str, PointTap]:
    """Returns the taps that round at all points."""
    everything, *_ = rounding.variants(decoder.spec)
    return everything.taps


def input_taps(decoder: Decoder) -> Mapping[str, PointTap]:
    """Returns the taps that round the inputs of linear layers, a token at a time."""
    layers = range(decoder.spec.num_layers)
    points = dict.fromkeys(INPUT_POINTS.values())
    places = [place for point in points for place in places_of(point, layers)]
    return PointRounding(grid=_TOKEN).taps(places)


def _rounded(x: Tensor, grid: ActivationGrid) -> Tensor:
    return round_activations(x, grid).values
