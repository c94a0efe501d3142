"""The tokens around texts: what a tokenizer's files say of beginnings and ends."""

from collections.abc import Iterable, Mapping

from paredown.models.text.tokenizer_files import TokenizerFiles
from paredown.models.text.tokenizer_library import TokenizerLibrary

# Larger than any vocabulary; an id without a token never ends a text.
_MAX_IDS = 1 << 31


def known_ids(library: TokenizerLibrary, token: str | None) -> list[int]:
    """Returns the id of a token, if there is one."""
    token_id = None if token is None else library.token_to_id(token)
    return [] if token_id is None else [token_id]


def ids_around(library: TokenizerLibrary) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the ids that the post-processor puts before and after a text."""
    if not library.num_around:
        return (), ()
    plain: list[int] = []
    for text in ("a", " ", "\n"):
        plain = library.encode(text)
        if plain:
            break
    ids, mask = library.encode_whole(text)
    num_before = next((i for i, is_added in enumerate(mask) if not is_added), 0)
    return tuple(ids[:num_before]), tuple(ids[num_before + len(plain) :])


def asked_ids_around(
    library: TokenizerLibrary, files: TokenizerFiles
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the ids that `add_bos_token` and `add_eos_token` put before and after a text. In a
    GGUF file these flags decide, whatever its tokenizer says."""
    bos, eos = (
        known_ids(library, files.special_tokens.get(f"{end}_token"))
        if files.config.get(f"add_{end}_token") is True
        else []
        for end in ("bos", "eos")
    )
    return tuple(bos), tuple(eos)


def named_ids(configs: Iterable[Mapping[str, object]], name: str) -> list[int]:
    """Returns all ids that the configs name, the first config's first."""
    ids: list[int] = []
    for config in configs:
        value = config.get(name)
        values = value if isinstance(value, list) else [value]
        ids += [one for one in values if type(one) is int and 0 <= one < _MAX_IDS]
    return ids
