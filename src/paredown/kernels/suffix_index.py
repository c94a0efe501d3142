"""SuffixIndex: where the last tokens of a text have stood before, and what came next there. In the
core (csrc/sampling/suffix_index.h): every token of every answer goes through it.

`update(sequence, token_ids)` adds a sequence by its number, or what its list has grown by since;
`find(token_ids)` gives the longest run at their end that is known, and the places (sequence,
position) behind it, the latest first; `continue_from(match, max_tokens, own=)` gives what came next
there, for a place in the sequence `own` also beyond its end; `remove(sequence)` forgets one.
"""

from paredown.kernels._core import SuffixIndex, SuffixMatch

__all__ = ["SuffixIndex", "SuffixMatch"]
