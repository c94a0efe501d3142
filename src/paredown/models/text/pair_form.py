"""PairForm: the tokens that a tokenizer puts around and between two texts, and their segments."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class PairForm:
    """A pair is `before`, the first text, `between`, the second text, `after`. Each of `types` is
    the segment of one of these five parts (BERT: 0, 0, 0, 1, 1)."""

    before: tuple[int, ...] = ()
    between: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    types: tuple[int, int, int, int, int] = (0, 0, 0, 0, 0)

    @property
    def num_special_tokens(self) -> int:
        return len(self.before) + len(self.between) + len(self.after)

    @classmethod
    def of_encoded(
        cls, ids: Sequence[int], types: Sequence[int], owners: Sequence[int | None]
    ) -> "PairForm":
        """Reads the form off a pair of short texts as the tokenizer encodes it. `owners` says to
        which of the two texts a token belongs, None for special tokens."""
        ends = [[place for place, owner in enumerate(owners) if owner == text] for text in (0, 1)]
        first, second = ((one[0], one[-1] + 1) for one in ends)
        parts = (
            slice(0, first[0]),
            slice(*first),
            slice(first[1], second[0]),
            slice(*second),
            slice(second[1], len(ids)),
        )
        of_text = types[first[0]], types[second[0]]
        nearest = (of_text[0], of_text[0], of_text[0], of_text[1], of_text[1])
        found = [next(iter(types[part]), near) for part, near in zip(parts, nearest, strict=True)]
        return cls(
            before=tuple(ids[parts[0]]),
            between=tuple(ids[parts[2]]),
            after=tuple(ids[parts[4]]),
            types=(found[0], found[1], found[2], found[3], found[4]),
        )

    def joined(self, first: Sequence[int], second: Sequence[int]) -> tuple[list[int], list[int]]:
        """Returns the tokens of a pair and their segments."""
        parts = (self.before, first, self.between, second, self.after)
        types = [
            kind for kind, part in zip(self.types, parts, strict=True) for _ in range(len(part))
        ]
        return [token_id for part in parts for token_id in part], types
