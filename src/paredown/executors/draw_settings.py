"""DrawSettings: how the tokens of one request are drawn from its rows of logits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawSettings:
    """The parameters of a request that a sampler reads, checked and resolved by the engine.

    `top_k` 0 keeps every token. `allowed_token_ids` None allows all. `ending_token_ids` are not
    drawn before `min_tokens`. `num_logprobs` None asks for no log-probabilities. `seed` is an
    unsigned 64-bit integer. docs/internals/sampling.md defines every step and their order.
    """

    seed: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    allowed_token_ids: Sequence[int] | None = None
    bad_words: Sequence[Sequence[int]] = ()
    min_tokens: int = 0
    ending_token_ids: Sequence[int] = ()
    num_logprobs: int | None = None
