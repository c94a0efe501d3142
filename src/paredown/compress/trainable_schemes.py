"""Checks before any work that the codes which a recipe makes can be trained."""

from collections.abc import Mapping

from paredown.compress.quantize.rtn import RTN
from paredown.compress.schemes import Scheme
from paredown.compress.steps import TrainStep
from paredown.errors import ConfigError, UnsupportedError
from paredown.spec.weight import WeightSpec


def check_trainable_schemes(step: TrainStep, schemes: Mapping[str, Scheme]) -> None:
    """`schemes` are those of the layers' modules. Raises UnsupportedError for weights that do not
    lie on grids of their own, and ConfigError for a rule that does not keep the codes of the
    quantizer, and for layers that all stay in floats."""
    if not schemes:
        raise ConfigError(
            "the recipe trains codes, and quantizes none of the layers",
            seen=f"method: {step.method}",
            remedy="Quantize the layers too (targets: [layers]).",
        )
    for name, scheme in schemes.items():
        stored, quantizer = scheme.stored, scheme.quantizer
        if not (isinstance(stored, WeightSpec) and stored.is_grid):
            raise UnsupportedError(
                f"{scheme.format} is not trained: its weights do not lie on a grid",
                seen=name,
                remedy="Train integers or fp8: qad-int3-g64, for one.",
            )
        shares = scheme.spec.integer_steps or (isinstance(quantizer, RTN) and quantizer.per_tensor)
        if shares and step.step_size_rule != "fixed":
            raise UnsupportedError(
                f"the scales of {scheme.format} depend on each other, and training would part them",
                seen=name,
                remedy="Keep the scales (rule: fixed, in a recipe file), or choose a format with "
                "free scales: qad-w4a8-g128.",
            )
        if step.step_size_rule == "minmax" and quantizer != RTN():
            raise ConfigError(
                f"scales that follow the largest weights would lose the codes of {scheme.method}",
                seen=f"rule: minmax, {name}",
                remedy="Round to nearest first (method: rtn), or let scales be learned.",
            )
