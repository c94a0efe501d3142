"""FillInMiddle: the tokens with which a model writes between two texts.

The prompt is the token that opens the text before the gap, that text, the token that opens the text
after the gap, that text, and the token that opens the gap ("PSM" of Bavarian et al. 2022, arXiv
2207.14255). Models differ only in how the three tokens are called.
"""

from collections.abc import Callable
from dataclasses import dataclass

# Before, after, gap.
_NAMES = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen2.5, CodeGemma
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder, Granite
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),  # SantaCoder
    ("\u2581<PRE>", "\u2581<SUF>", "\u2581<MID>"),  # CodeLlama
    (
        "<\uff5cfim\u2581begin\uff5c>",
        "<\uff5cfim\u2581hole\uff5c>",
        "<\uff5cfim\u2581end\uff5c>",
    ),  # DeepSeek
)
# Tokens that end what stands in the gap, beside those that end every text.
_ENDS = (
    "<|endoftext|>",
    "<|fim_pad|>",
    "<|file_sep|>",
    "<|file_separator|>",
    "<fim_pad>",
    "<fim-pad>",
    "<file_sep>",
    "\u2581<EOT>",
)


@dataclass(frozen=True, kw_only=True)
class FillInMiddle:
    """`end_ids` end an answer."""

    before_id: int
    after_id: int
    gap_id: int
    end_ids: tuple[int, ...]

    @classmethod
    def of(cls, token_to_id: Callable[[str], int | None]) -> "FillInMiddle | None":
        """Returns the tokens of a vocabulary, or None where it has not all three."""
        for names in _NAMES:
            ids = [token_id for name in names if (token_id := token_to_id(name)) is not None]
            if len(ids) == len(names):
                ends = (*names, *_ENDS)
                end_ids = {one for name in ends if (one := token_to_id(name)) is not None}
                before_id, after_id, gap_id = ids
                return cls(
                    before_id=before_id,
                    after_id=after_id,
                    gap_id=gap_id,
                    end_ids=tuple(sorted(end_ids)),
                )
        return None

    def surround(self, before_ids: list[int], after_ids: list[int]) -> list[int]:
        """Returns the tokens of the prompt, without what stands before every text."""
        return [self.before_id, *before_ids, self.after_id, *after_ids, self.gap_id]
