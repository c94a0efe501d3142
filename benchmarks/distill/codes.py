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

from benchmarks.kept_models import KeptModels
from paredown.compress.recipe import Recipe
from paredown.compress.steps import TrainStep
from paredown.distill.quantized.train_config import quantized_train_config
from paredown.distill.quantized.train_quantized import (
    QuantizedTrainResult,
    TrainedFrom,
    train_quantized,
)
from paredown.evaluate.texts.calibration_text import CalibrationConfig
from paredown.evaluate.verify.verification import Verification
from paredown.jobs.compress import as_recipe, compress_and_verify
from paredown.jobs.float_source import float_source
from paredown.jobs.recipe_texts import recipe_texts
from paredown.jobs.train_codes import training_note
from paredown.jobs.verifier import Verifier
from paredown.jobs.verify_config import VerifyConfig
from paredown.models.checkpoint import Checkpoint
from paredown.spec.device import Device

FORMATS = ("int2-g64", "int3-g64")


@dataclass(frozen=True, kw_only=True)
class Codes:
    """`model` None is the built-in one. It is calibrated on `num_windows` windows, and measured on
    `num_text_tokens` tokens."""

    model: str | None
    num_windows: int
    num_text_tokens: int
    train_device: Device


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
    """Returns the figures of each recipe, a name or a YAML file, which are measured by the executor
    that serves."""
    found = {}
    for named in recipes:
        run = _Run(codes=codes, recipe=as_recipe(named), models=models)
        found[named] = run.figures(Path(named).name)
        print(f"{named}: {found[named]}", file=sys.stderr)
    return found


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

    def figures(self, name: str) -> dict[str, Any]:
        start = without_training(self.recipe)
        figures = self.models.figures(start.name, lambda path: self._quantize(start, path))
        step = self.recipe.train_step
        if step is None:
            return figures
        place = self.models.model(start.name)
        return self.models.figures(name, lambda path: self._train(name, step, place, path))

    def _quantize(self, start: Recipe, path: Path) -> dict[str, Any]:
        began = time.perf_counter()
        made = compress_and_verify(
            self.codes.model,
            path,
            start,
            calibration=CalibrationConfig(num_samples=self.codes.num_windows),
            verify=VerifyConfig(num_tokens=self.codes.num_text_tokens),
            overwrite=True,
        )
        assert made.verification is not None, made.not_verified
        told = {"seconds": time.perf_counter() - began, "notes": list(made.written.notes)}
        return _qualities(made.verification) | told

    def _train(self, name: str, step: TrainStep, start: Path, path: Path) -> dict[str, Any]:
        with float_source(self.codes.model) as source:
            text = recipe_texts(source, [], CalibrationConfig(), None).training
            assert text is not None
            rows = text(step)
            measured = VerifyConfig(num_tokens=self.codes.num_text_tokens)
            verifier = Verifier(source.original, name, measured.choose_text(source.original, None))
            used = time.process_time()

            def finish(folder: Path, done: QuantizedTrainResult) -> None:
                nonlocal used
                used = time.process_time() - used
                verifier(folder, (training_note(done, rows.source),))

            done = train_quantized(
                TrainedFrom(
                    start=Checkpoint.open(start),
                    original=source.original,
                    floats=None if self.recipe.transforms else source.floats,
                ),
                path,
                quantized_train_config(replace(step, device=self.codes.train_device)),
                rows.rows,
                overwrite=True,
                finish=finish,
            )
        assert verifier.verification is not None, verifier.skipped
        return _qualities(verifier.verification) | {
            "seconds": done.training.records[-1].elapsed_s,
            "processor_s": used,
            "num_tokens": done.training.num_tokens,
            "moved_share": done.moved_share,
        }


def _qualities(verification: Verification) -> dict[str, Any]:
    after = verification.compressed
    return {
        "kl": after.kl_divergence,
        "perplexity": after.perplexity,
        "top1_agreement": after.top1_agreement,
    }
