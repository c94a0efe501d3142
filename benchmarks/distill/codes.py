"""Codes that are trained, beside those of GPTQ: what is left of the KL divergence, and the time."""

import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.kept_models import KeptModels
from paredown.compress.changed_recipe import with_train_device
from paredown.compress.recipe import Recipe
from paredown.evaluate.texts.calibration_text import CalibrationConfig
from paredown.jobs.compress import as_recipe, compress_and_verify
from paredown.jobs.verify_config import VerifyConfig
from paredown.spec.device import Device

FORMATS = ("int2-g64", "int3-g64")


def on_device(recipe: Recipe, device: Device) -> Recipe:
    """Returns the recipe with what it trains, if anything, on that device."""
    return recipe if recipe.train_step is None else with_train_device(recipe, device)


def recipes_of(form: str, num_tokens: int) -> list[str]:
    return [
        f"gptq-{form}",
        f"gptq-{form}-scales-{num_tokens}",
        f"qad-{form}-{num_tokens}",
        f"qat-{form}-{num_tokens}",
    ]


def measure_codes(
    model: str | None,
    recipes: list[str],
    num_text_tokens: int,
    models: KeptModels,
    train_device: Device,
) -> dict[str, dict[str, Any]]:
    """Returns the figures of each recipe, a name or a YAML file, which are measured by the executor
    that serves."""
    found = {}
    for recipe in recipes:

        def make(path: Path, recipe: str = recipe) -> dict[str, Any]:
            began = time.perf_counter()
            made = compress_and_verify(
                model,
                path,
                on_device(as_recipe(recipe), train_device),
                calibration=CalibrationConfig(num_samples=64),
                verify=VerifyConfig(num_tokens=num_text_tokens),
                overwrite=True,
            )
            assert made.verification is not None, made.not_verified
            after = made.verification.compressed
            return {
                "seconds": time.perf_counter() - began,
                "kl": after.kl_divergence,
                "perplexity": after.perplexity,
                "top1_agreement": after.top1_agreement,
                "notes": list(made.written.notes),
            }

        found[recipe] = models.figures(Path(recipe).name, make)
        print(f"{recipe}: {found[recipe]}", file=sys.stderr)
    return found
