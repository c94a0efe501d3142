"""The steps of a recipe, in the order in which they may stand: cut, prune, recover, transform,
quantize, train."""

import math
from dataclasses import dataclass
from typing import Literal

from paredown.compress.cut.method import Cut
from paredown.compress.group_sizes import fit_groups
from paredown.compress.prune.method import Pruner, Refinement
from paredown.compress.prune.pattern import NOfM, Pattern, Share
from paredown.compress.quantize.method import Quantizer, Transform
from paredown.errors import ConfigError
from paredown.spec.device import Device
from paredown.spec.weight import WeightSpec

# Targets besides the names of modules: every linear layer of the transformer layers, the output
# layer, and the table of embeddings.
LAYERS = "layers"
OUTPUT = "head"
EMBEDDING = "embedding"

# How the shares of layers are found: all alike, by one threshold for the whole model, or from what
# pruning each layer alone costs (jobs/measured_shares.py).
Budget = Literal["alike", "global", "sensitivity"]

# What codes are trained for, and on: the original's predictions (QAD), the text's own tokens (QAT),
# the original's predictions on text that it makes itself (LLM-QAT); or the scales alone.
TrainMethod = Literal["qad", "qat", "llm_qat", "scales"]
# How the scales of trained weights are found (distill/quantized/quantized_linear.py).
StepSizeRule = Literal["learned", "fixed", "minmax"]
# The budget of a training that names none.
DEFAULT_TRAIN_TOKENS = 300_000


@dataclass(frozen=True, kw_only=True)
class CutStep:
    """Makes layers smaller, or leaves some out."""

    cut: Cut


@dataclass(frozen=True, kw_only=True)
class PruneStep:
    """Makes weights of its targets zero, by `pattern`; `targets` as in QuantizeStep. `refinements`
    follow in order.

    `budget` says how the layers share the removed weights. With a limit, all layers lose one share:
    the largest within it, at most the pattern's. `max_loss` limits the predicted increase of the
    loss (the sum of OBS's saliencies), `max_kl` the measured KL divergence to the original in nats
    per token, and `min_cosine` the least cosine of an encoder's vector to the original's
    (jobs/measured_divergence.py). Raises ConfigError for a budget that the pattern cannot have.
    """

    pruner: Pruner
    pattern: Pattern
    targets: tuple[str, ...] = (LAYERS,)
    refinements: tuple[Refinement, ...] = ()
    budget: Budget = "alike"
    max_loss: float | None = None
    max_kl: float | None = None
    min_cosine: float | None = None

    def __post_init__(self) -> None:
        self.pruner.check(self.pattern)
        limits = {
            name: limit
            for name, limit in (
                ("max_loss", self.max_loss),
                ("max_kl", self.max_kl),
                ("min_cosine", self.min_cosine),
            )
            if limit is not None
        }
        if isinstance(self.pattern, NOfM) and (self.budget != "alike" or limits):
            raise ConfigError(
                "a pattern of n in m leaves no share to choose",
                seen=f"{self.pattern.name} with a budget",
                remedy="Give a share (50) with a budget, or leave the budget out.",
            )
        if len(limits) > 1:
            raise ConfigError(
                "one limit alone ends pruning, and more are set",
                seen=", ".join(f"{name} {limit}" for name, limit in limits.items()),
                remedy="Leave all but one of them out.",
            )
        if self.budget != "alike" and limits:
            raise ConfigError(
                "one share for all layers is what a largest loss decides",
                seen=f"budget {self.budget} with {', '.join(map(_told, limits.items()))}",
                remedy="Give the budget or the loss.",
            )
        if self.min_cosine is not None and not 0 < self.min_cosine < 1:
            raise ConfigError(
                "no pruned model is held by such a cosine to the original's vectors",
                seen=f"min_cosine {self.min_cosine:g}",
                remedy="Give the least cosine that is allowed, above 0 and below 1: 0.99, for one.",
            )
        if not all(0 < one < math.inf for one in limits.values()):
            raise ConfigError(
                "the loss that pruning may cost is not a positive number",
                seen=", ".join(map(_told, limits.items())),
                remedy="Give the increase of the summed error, or the KL divergence, that is "
                "allowed: 0.01, for one.",
            )

    @property
    def needs_hessian(self) -> bool:
        has_curves = self.max_loss is not None
        return self.pruner.needs_hessian or bool(self.refinements) or has_curves

    @property
    def needs_calibration(self) -> bool:
        return self.needs_hessian or self.pruner.needs_gradients

    @property
    def share(self) -> Share:
        return Share(share=self.pattern.share)


def _told(limit: tuple[str, float]) -> str:
    return f"{limit[0]} {limit[1]:g}"


@dataclass(frozen=True, kw_only=True)
class RecoverStep:
    """Trains what the steps before made against the original, for a number of tokens or of
    minutes, on `device`. Raises ConfigError unless exactly one is given and positive."""

    num_tokens: int | None = None
    minutes: float | None = None
    device: Device = "cpu"

    def __post_init__(self) -> None:
        given = [one for one in (self.num_tokens, self.minutes) if one is not None]
        if len(given) != 1 or not given[0] > 0:
            raise ConfigError(
                "a recovery has one budget, of tokens or of minutes",
                seen=f"tokens {self.num_tokens}, minutes {self.minutes}",
                remedy="Give --recover-tokens 500000, or --recover-minutes 10.",
            )

    @property
    def name(self) -> str:
        if self.num_tokens is None:
            return f"recover-{self.minutes:g}m"
        return f"recover-{self.num_tokens}"


@dataclass(frozen=True, kw_only=True)
class TransformStep:
    """Transforms every transformer layer."""

    transform: Transform


@dataclass(frozen=True, kw_only=True)
class QuantizeStep:
    """Quantizes its targets to a format.

    `targets` are "layers", "head", "embedding", a role ("down"), a module's name, or "re:" and a
    regular expression that matches a module's whole name. With `group_sizes` each module has the
    largest size that divides its columns, instead of that of `spec`, which is the largest of them.
    Empty means that all modules have that of `spec`. Raises ConfigError or UnsupportedError for a
    format that the quantizer does not make.
    """

    quantizer: Quantizer
    spec: WeightSpec
    targets: tuple[str, ...] = (LAYERS,)
    group_sizes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        self.quantizer.check(self.spec)

    def spec_for(self, num_columns: int) -> WeightSpec:
        """Returns the format of a module with that many columns; the smallest groups if none
        divides."""
        return fit_groups(self.spec, self.group_sizes, num_columns)


@dataclass(frozen=True, kw_only=True)
class TrainStep:
    """Trains what the steps before quantized, for a number of tokens or of minutes;
    DEFAULT_TRAIN_TOKENS where neither is given. Codes and scales stay those of the format.

    `method`         what is trained, and for what
    `rule`           how scales are found; None is "minmax" for llm_qat and "learned" for others
    `learning_rate`  the highest; None is the method's (distill/quantized/train_config.py)
    `device`         where it is trained

    Raises ConfigError for two budgets, numbers that are not positive, and a rule that does not
    train the scales that the method is about.
    """

    method: TrainMethod = "qad"
    num_tokens: int | None = None
    minutes: float | None = None
    rule: StepSizeRule | None = None
    learning_rate: float | None = None
    device: Device = "cpu"

    def __post_init__(self) -> None:
        given = [one for one in (self.num_tokens, self.minutes) if one is not None]
        if len(given) > 1 or not all(0 < one < math.inf for one in given):
            raise ConfigError(
                "a training has one budget, of tokens or of minutes",
                seen=f"tokens {self.num_tokens}, minutes {self.minutes}",
                remedy="Give --train-tokens 300000, or --train-minutes 10.",
            )
        rate = self.learning_rate
        if rate is not None and not 0 < rate < math.inf:
            raise ConfigError(
                "the learning rate is not a positive number",
                seen=rate,
                remedy="Give 0.0001, for one, or leave it out.",
            )
        if self.method == "scales" and self.step_size_rule != "learned":
            raise ConfigError(
                "scales alone are trained, and the rule does not train them",
                seen=f"rule: {self.rule}",
                remedy="Leave the rule out, or train the codes too (method: qad).",
            )

    @property
    def step_size_rule(self) -> StepSizeRule:
        return self.rule or ("minmax" if self.method == "llm_qat" else "learned")

    @property
    def budget_name(self) -> str:
        """The budget as names of recipes have it; "" where it is the default."""
        if self.minutes is not None:
            return f"{self.minutes:g}m"
        return "" if self.num_tokens is None else str(self.num_tokens)


Step = CutStep | PruneStep | RecoverStep | TransformStep | QuantizeStep | TrainStep
