"""SuffixIndex: finds where the last tokens of a text occurred before, and what followed there. It
lives in the core (csrc/sampling/suffix_index.h), because every token of every answer passes
through it.

`update(sequence, token_ids)` adds a sequence by its number, or the tokens by which its list has
grown. `find(token_ids)` returns the longest known run at the end of the tokens, and the places
(sequence, position) after it, the latest first. `continue_from(match, max_tokens, own=)` returns
the tokens that followed there; a place in the sequence `own` may continue beyond its end.
`remove(sequence)` forgets a sequence.
"""

from paredown.kernels._core import SuffixIndex, SuffixMatch

__all__ = ["SuffixIndex", "SuffixMatch"]
