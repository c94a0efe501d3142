"""Notes on faults of a GGUF file's tokenizer that are ignored, as in llama.cpp, which warns."""

from collections.abc import Iterator, Mapping

import numpy as np

from paredown.models.gguf.header import Value

_MODEL, _PRE, _TOKENS = (f"tokenizer.ggml.{name}" for name in ("model", "pre", "tokens"))
_JSON = "tokenizer.huggingface.json"
# Special tokens that we never insert. The keys do spell "seperator" this way.
_UNUSED = tuple(f"tokenizer.ggml.{name}_token_id" for name in ("padding", "seperator", "mask"))


def tokenizer_notes(metadata: Mapping[str, Value]) -> Iterator[str]:
    """Yields one sentence for each fault."""
    model = metadata.get(_MODEL)
    is_byte_level = isinstance(model, str) and model == "gpt2"
    if is_byte_level and _PRE not in metadata and _JSON not in metadata:
        yield f"{_PRE} is missing: text is cut into words by llama.cpp's default rule"
    tokens = metadata.get(_TOKENS)
    if not isinstance(tokens, list):
        return
    for key in _UNUSED:
        value = metadata.get(key)
        if isinstance(value, np.integer) and not 0 <= value < len(tokens):
            yield f"{key} {value} is none of the {len(tokens)} tokens and is passed over"
