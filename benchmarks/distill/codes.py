"""Codes that are trained, beside those of GPTQ: what is left of the KL divergence, and the time.

Recipes that quantize alike begin with the same folder, which is made once.
"""

import hashlib
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.distill.auto_round import PREFIX, tune_with_auto_round
from benchmarks.kept_models import KeptModels
from paredown.compress.recipe import Recipe
from paredown.compress.steps import TrainStep
from paredown.distill.quantized.train_config import quantized_train_config
from paredown.distill.quantized.train_quantized import TrainedFrom, train_quantized
from paredown.evaluate.quality.quality import measure_quality, num_pages_for
from paredown.evaluate.texts.calibration_text import CalibrationConfig
from paredown.executors.load import load_executor
from paredown.executors.run_options import RunOptions
from paredown.jobs.compress import as_recipe, compress_and_verify
from paredown.jobs.float_source import float_source
from paredown.jobs.recipe_texts import recipe_texts
from paredown.jobs.verify_config import VerifyConfig
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model
from paredown.spec.device import Device

FORMATS = ("int2-g64", "int3-g64")


@dataclass(frozen=True, kw_only=True)
class Codes:
    """`model` None is the built-in one. It is calibrated on `num_windows` windows, and measured on
    `num_text_tokens` tokens. `auto_round` is an interpreter that has AutoRound."""

    model: str | None
    num_windows: int
    num_text_tokens: int
    train_device: Device
    auto_round: Path | None = None


def recipes_of(form: str, num_tokens: int) -> list[str]:
    return [
        f"gptq-{form}",
        f"gptq-{form}-scales-{num_tokens}",
        f"qad-{form}-{num_tokens}",
        f"qat-{form}-{num_tokens}",
    ]


def measure_codes(
    codes: Codes, recipes: Sequence[str], models: KeptModels
) -> dict[str, dict[str, Any]]:
    """Returns the figures of each recipe, a name or a YAML file. All are measured together by the
    executor that serves, so that the original runs once."""
    found: dict[str, dict[str, Any]] = {}
    folders = []
    for named in recipes:
        if named.startswith(PREFIX):
            folder, found[named] = _tuned(codes, named, models)
        else:
            run = _Run(codes=codes, recipe=as_recipe(named), models=models)
            folder, found[named] = run.made(Path(named).name)
        folders.append(folder)
        print(f"{named}: {found[named]}", file=sys.stderr)
    qualities = _qualities(codes, folders)
    return {named: found[named] | own for named, own in zip(recipes, qualities, strict=True)}


def _tuned(codes: Codes, name: str, models: KeptModels) -> tuple[Path, dict[str, Any]]:
    python = codes.auto_round
    if python is None:
        raise SystemExit(
            f"{name} needs --auto-round PYTHON, an interpreter with auto-round 0.16.1."
        )
    told = models.figures(
        name,
        lambda path: tune_with_auto_round(
            python, codes.model, name, num_windows=codes.num_windows, out=path
        ),
    )
    return models.model(name), told


def without_training(recipe: Recipe) -> Recipe:
    """Returns what the recipe does before it trains, under a name that depends on that alone."""
    steps = tuple(step for step in recipe.steps if not isinstance(step, TrainStep))
    digest = hashlib.sha256(repr((steps, recipe.floats, recipe.kv_cache)).encode()).hexdigest()
    return replace(recipe, name=f"quantized-{digest[:12]}", steps=steps)


@dataclass(frozen=True, kw_only=True)
class _Run:
    codes: Codes
    recipe: Recipe
    models: KeptModels

    def made(self, name: str) -> tuple[Path, dict[str, Any]]:
        """Returns the recipe's folder, and what making it took."""
        start = without_training(self.recipe)
        told = self.models.figures(start.name, lambda path: self._quantize(start, path))
        place, step = self.models.model(start.name), self.recipe.train_step
        if step is None:
            return place, told
        told = self.models.figures(name, lambda path: self._train(step, place, path))
        return self.models.model(name), told

    def _quantize(self, start: Recipe, path: Path) -> dict[str, Any]:
        began, used = time.perf_counter(), time.process_time()
        calibration = CalibrationConfig(num_samples=self.codes.num_windows)
        compress_and_verify(
            self.codes.model, path, start, calibration=calibration, verify=None, overwrite=True
        )
        return {
            "seconds": time.perf_counter() - began,
            "processor_s": time.process_time() - used,
        }

    def _train(self, step: TrainStep, start: Path, path: Path) -> dict[str, Any]:
        with float_source(self.codes.model) as source:
            text = recipe_texts(source, [], CalibrationConfig(), None).training
            assert text is not None
            rows = text(step).rows
            used = time.process_time()
            done = train_quantized(
                TrainedFrom(
                    start=Checkpoint.open(start),
                    original=source.original,
                    floats=None if self.recipe.transforms else source.floats,
                ),
                path,
                quantized_train_config(replace(step, device=self.codes.train_device)),
                rows,
                overwrite=True,
            )
        return {
            "seconds": done.training.records[-1].elapsed_s,
            "processor_s": time.process_time() - used,
            "num_tokens": done.training.num_tokens,
            "moved_share": done.moved_share,
            "losses": [record.loss for record in done.training.records],
        }


def _qualities(codes: Codes, folders: Sequence[Path]) -> list[dict[str, Any]]:
    original = Checkpoint.open(resolve_model(codes.model))
    text = VerifyConfig(num_tokens=codes.num_text_tokens).choose_text(original, None)
    options = RunOptions(num_pages=num_pages_for(text), threads=ThreadPlan.resolve(None))
    executors = [load_executor(Checkpoint.open(folder), options) for folder in folders]
    found, _ = measure_quality(executors, text, load_executor(original, options))
    return [
        {
            "kl": own.kl_divergence,
            "perplexity": own.perplexity,
            "top1_agreement": own.top1_agreement,
        }
        for own in found
    ]
