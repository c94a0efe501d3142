"""Prompts: the beginnings of texts that a model goes on from."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paredown.distill.rows import Rows
from paredown.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Prompts:
    """Token ids of each prompt. Raises ConfigError without prompts, and for one without tokens."""

    token_ids: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if not self.token_ids or not all(self.token_ids):
            raise ConfigError(
                "there is nothing to go on from",
                seen=f"{len(self.token_ids)} prompts, {self.token_ids.count(())} without a token",
                remedy="Give at least one prompt, each of at least one token.",
            )

    @classmethod
    def of_rows(cls, rows: Rows, num_tokens: int) -> "Prompts":
        """Takes the prompts of texts: the tokens before the first target, at most the last
        `num_tokens` of them. Plain text, in which all tokens but the first are targets, gives its
        first `num_tokens` tokens. Texts of padding alone give none."""
        found = list[tuple[int, ...]]()
        for row in range(rows.num_rows):
            texts_T = None if rows.texts_NT is None else rows.texts_NT[row]
            for tokens_T, is_target_T in _texts(
                rows.tokens_NT[row], rows.is_target_NT[row], texts_T
            ):
                if not is_target_T.any():
                    continue
                end = int(is_target_T.argmax())
                is_plain = end == 1 and bool(is_target_T[1:].all())
                kept_T = tokens_T[:num_tokens] if is_plain else tokens_T[:end][-num_tokens:]
                found.append(tuple(kept_T.tolist()))
        return cls(token_ids=tuple(found))

    @property
    def num_prompts(self) -> int:
        return len(self.token_ids)

    @property
    def num_tokens(self) -> int:
        """The length of the longest."""
        return max(len(ids) for ids in self.token_ids)

    @property
    def digest(self) -> str:
        """The SHA-256 of all prompts."""
        return hashlib.sha256(repr(self.token_ids).encode()).hexdigest()


def _texts(
    tokens_T: npt.NDArray[np.int64],
    is_target_T: npt.NDArray[np.bool_],
    texts_T: npt.NDArray[np.int32] | None,
) -> Sequence[tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]]:
    """Returns the tokens and targets of each text of a row."""
    if texts_T is None:
        return [(tokens_T, is_target_T)]
    borders = np.flatnonzero(np.diff(texts_T)) + 1
    pairs = zip(np.split(tokens_T, borders), np.split(is_target_T, borders), strict=True)
    return list(pairs)
