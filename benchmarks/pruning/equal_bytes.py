"""Is pruning better than fewer bits? Pruned and quantized models at equal bytes and equal speed.

All are made from the same weights and measured in rounds that alternate.
"""

import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from benchmarks.kept_models import KeptModels
from benchmarks.pruning.cuts import Measured, cut_of
from paredown.compress.cut.ffn import CutNeurons
from paredown.compress.recipe_names import find_recipe
from paredown.evaluate.quality.measurement import linear_format, make_measurement
from paredown.evaluate.quality.quality import measure_quality, num_pages_for
from paredown.evaluate.speed.speed import Trial, run_rounds, speed_pages
from paredown.evaluate.texts.training_text import TrainingTextConfig
from paredown.executors.load import load_executor
from paredown.executors.run_options import RunOptions
from paredown.jobs.recipe_texts import RecipeTexts
from paredown.jobs.run_recipe import run_recipe
from paredown.jobs.staged_recipe import check_stages
from paredown.jobs.training_rows import training_rows
from paredown.kernels.probe import measure_machine
from paredown.models.checkpoint import Checkpoint
from paredown.progress import OnProgress
from paredown.units import MEGA

TABLES = "-head-int8-embedding-int8"
QUANTIZED = ("int8", "gptq-int6-g64", "gptq-int5-g64", "gptq-int4-g64", "gptq-int3-g64")
SPARSE = ("sparsegpt-50-int8", "sparsegpt-2of4-int8", "sparsegpt-50")
# The widths that a cut leaves need not be multiples of 64.
CUT_FORMATS = {"ffn": ("gptq-int4-g64-g32", "int8"), "layers": ("gptq-int4-g64",)}
_ROUNDS = 7


def measure_bytes(
    measured: Measured,
    models: KeptModels,
    recovered_cuts: list[str],
    recipes: list[str] | None,
    on_progress: OnProgress,
) -> dict[str, Any]:
    """Returns the figures of every model: those quantized alone, pruned and quantized, pruned,
    recovered and quantized, and sparse and quantized. `models` may have the recovered ones from a
    measurement of cuts; otherwise they are made. Only `recovered_cuts` are recovered. Where
    `recipes` are given, all others are left out."""
    recover = f"-recover-{measured.num_tokens}"
    cut_names = [
        f"{name_of(cut, measured.source.spec.num_layers)}-{form}"
        for cut, forms in CUT_FORMATS.items()
        for form in forms
    ]
    recovered = [
        f"{name_of(cut, measured.source.spec.num_layers)}{recover}-{form}"
        for cut in recovered_cuts
        for form in CUT_FORMATS[cut]
        if "gptq" in form
    ]
    names = [*QUANTIZED, *cut_names, *recovered, *SPARSE]
    names = [name for name in names if recipes is None or name in recipes]
    texts = RecipeTexts(
        calibration=measured.calibration,
        training=lambda step: training_rows(
            measured.source, TrainingTextConfig(num_tokens=step.num_tokens or 1), None
        ),
    )
    pages = max(num_pages_for(measured.text), speed_pages(measured.source.spec))
    options = RunOptions(num_pages=pages)
    reference = load_executor(measured.source, options)
    made = {}
    for number, name in enumerate(names):
        on_progress(name, number / len(names))
        made[name] = make_model(measured, name, recover, texts, models)
    executors = {name: load_executor(one, options) for name, one in made.items()}
    qualities, _ = measure_quality([*executors.values()], measured.text, reference)
    trials = [Trial(executor=executors[name], weights=linear_format(made[name])) for name in names]
    run_rounds(trials, _ROUNDS)
    machine = measure_machine(None)
    figures = [
        make_measurement(
            name,
            made[name],
            quality=quality,
            speed=trial.speed(machine),
            original=measured.source,
            held_bytes=executors[name].weight_bytes,
        )
        for name, quality, trial in zip(names, qualities, trials, strict=True)
    ]
    show([one.as_json() for one in figures])
    return {one.name: one.as_json() for one in figures}


def make_model(
    measured: Measured, name: str, recover: str, texts: RecipeTexts, models: KeptModels
) -> Checkpoint:
    """Returns the model of that recipe, which an earlier run may have made."""
    made = models.part("bytes")

    def make(path: Path) -> dict[str, Any]:
        ending = TABLES if name in QUANTIZED or "int" in name else ""
        source, rest = known_stages(measured.source, f"{name}{ending}", recover, models)
        staged = check_stages(source, find_recipe(rest))
        began = time.perf_counter()
        run_recipe(staged, path, texts=texts, overwrite=True)
        return {"seconds": time.perf_counter() - began}

    made.figures(name, make)
    return Checkpoint.open(made.model(name))


def name_of(cut: str, num_layers: int) -> str:
    """Returns the recipe of the cut that a measurement of cuts makes."""
    step = cut_of(cut, num_layers)
    return "prune-ffn-25" if isinstance(step, CutNeurons) else f"prune-layers-{step.num}"


def known_stages(
    source: Checkpoint, name: str, recover: str, models: KeptModels
) -> tuple[Checkpoint, str]:
    """Returns the model that a measurement of cuts has trained, and what of the recipe is left."""
    made, found, rest = name.partition(f"{recover}-")
    trained = models.part("ffn" if "ffn" in made else "layers").model("kl")
    if not found or not trained.exists():
        return source, name
    return Checkpoint.open(trained), rest


def show(rows: list[dict[str, Any]]) -> None:
    for title, key in (("by bytes", "file_bytes"), ("by speed", "decode_tokens_per_s")):
        headings = ("MB", "MB held", "tokens/s", "KL", "perplexity")
        table = Table(Column("recipe", overflow="fold"), *headings, title=title)
        for row in sorted(rows, key=lambda row: row[key]):
            table.add_row(
                row["name"],
                f"{row['file_bytes'] / MEGA:.1f}",
                f"{row['held_bytes'] / MEGA:.1f}",
                f"{row['decode_tokens_per_s']:.0f}",
                f"{row['kl_divergence']:.4f}",
                f"{row['perplexity']:.3f}",
            )
        Console().print(table)
