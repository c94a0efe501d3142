"""Codes that are trained, beside those of GPTQ: what is left of the KL divergence, and the time."""

import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.kept_models import KeptModels
from paredown.evaluate.texts.calibration_text import CalibrationConfig
from paredown.jobs.compress import compress_and_verify
from paredown.jobs.verify_config import VerifyConfig

FORMATS = ("int2-g64", "int3-g64")


def recipes_of(form: str, num_tokens: int) -> list[str]:
    return [
        f"gptq-{form}",
        f"gptq-{form}-scales-{num_tokens}",
        f"qad-{form}-{num_tokens}",
        f"qat-{form}-{num_tokens}",
    ]


def measure_codes(
    model: str | None, recipes: list[str], num_text_tokens: int, models: KeptModels
) -> dict[str, dict[str, Any]]:
    """Returns the figures of each recipe, which are measured by the executor that serves."""
    found = {}
    for recipe in recipes:

        def make(path: Path, recipe: str = recipe) -> dict[str, Any]:
            began = time.perf_counter()
            made = compress_and_verify(
                model,
                path,
                recipe,
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

        found[recipe] = models.figures(recipe, make)
        print(f"{recipe}: {found[recipe]}", file=sys.stderr)
    return found
