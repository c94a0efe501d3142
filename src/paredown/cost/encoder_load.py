"""The load of a batch of texts that an encoder reads at once."""

from paredown.cost.model_formats import ModelFormats
from paredown.cost.operation import load_letters
from paredown.cost.operations import operations
from paredown.cost.step_cost import StepLoad, chunk_pairs
from paredown.spec.model import ModelSpec


def text_pairs(num_tokens: int, window: int | None, *, is_causal: bool) -> int:
    """Returns the query-key pairs of a text. Without a causal mask a token sees those on both
    sides, with a window those that are less than `window` away."""
    if is_causal:
        return chunk_pairs(0, num_tokens, window)
    num_far = 0 if window is None else max(0, num_tokens - window)
    return num_tokens * num_tokens - num_far * (num_far + 1)


def encoder_load(num_texts: int, num_tokens: int, spec: ModelSpec) -> StepLoad:
    """Returns the load of `num_texts` texts of `num_tokens` tokens. All tokens pass through all
    layers, so each counts as a row that is asked for."""
    is_causal = spec.is_causal
    return StepLoad(
        num_tokens=num_texts * num_tokens,
        num_logits=num_texts * num_tokens,
        num_requests=num_texts,
        attention_pairs=num_texts * text_pairs(num_tokens, None, is_causal=is_causal),
        kv_tokens_read=num_texts * num_tokens,
        windowed_pairs=tuple(
            num_texts * text_pairs(num_tokens, window, is_causal=is_causal)
            for window in spec.windows
        ),
        windowed_kv_tokens_read=(num_texts * num_tokens,) * len(spec.windows),
    )


def encoder_flops(num_texts: int, num_tokens: int, spec: ModelSpec) -> float:
    """Returns the multiplications and additions of the layers. A head adds little: its products
    have a row for each text, or a small weight."""
    letters = load_letters(encoder_load(num_texts, num_tokens, spec), spec)
    return sum(one.count * one.flops.value(letters) for one in operations(spec, ModelFormats()))
