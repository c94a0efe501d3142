"""How a recipe's step trains codes: its loss, its grids, and the numbers of the run."""

from paredown.compress.steps import DEFAULT_TRAIN_TOKENS, TrainMethod, TrainStep
from paredown.distill.losses.cross_entropy import CrossEntropy
from paredown.distill.losses.kl import KL
from paredown.distill.losses.token_loss import TokenLoss
from paredown.distill.quantized.train_quantized import QuantizedTrainConfig
from paredown.distill.quantized.trained_grids import TrainedGrids
from paredown.distill.train_config import TrainConfig

_LOSSES: dict[TrainMethod, TokenLoss] = {
    "qad": KL(),
    "qat": CrossEntropy(),
    "llm_qat": KL(),
    "scales": KL(),
}
# For qad and scales the best of those tried on the built-in model at int2-g64, 24,576 tokens
# (docs/methods/quantized_training.md); the others take that of qad.
_LEARNING_RATES: dict[TrainMethod, float] = {
    "qad": 1e-4,
    "qat": 1e-4,
    "llm_qat": 1e-4,
    "scales": 3e-3,
}
# Steps of more tokens learn less from the same text, measured in the same runs.
_BATCH_TOKENS = 1024
# The share of the highest learning rate that is left at the end.
_FINAL_SHARE = 0.1


def quantized_train_config(step: TrainStep, num_threads: int | None = None) -> QuantizedTrainConfig:
    """Returns the configuration of the step. `num_threads` None is all cores."""
    rate = step.learning_rate or _LEARNING_RATES[step.method]
    num_tokens = step.num_tokens
    if step.minutes is None:
        num_tokens = num_tokens or DEFAULT_TRAIN_TOKENS
    return QuantizedTrainConfig(
        train=TrainConfig(
            num_tokens=num_tokens,
            minutes=step.minutes,
            learning_rate=rate,
            final_learning_rate=_FINAL_SHARE * rate,
            batch_tokens=_BATCH_TOKENS,
            device=step.device,
            num_threads=num_threads,
        ),
        loss=_LOSSES[step.method],
        grids=TrainedGrids(rule=step.step_size_rule, trains_codes=step.method != "scales"),
    )
