"""The limits of a grammar: of its check in a process of its own, and of each step of an answer.

docs/internals/grammars.md says what each of them stops.
"""

from typing import TYPE_CHECKING

from paredown.models.text.confined_process import Confinement
from paredown.units import GIBI, MEBI

if TYPE_CHECKING:
    from llguidance import LLParserLimits

CONFINEMENT = Confinement(
    target="paredown.engine.grammar.check_program:make_checker",
    # Reading the largest vocabularies takes a second or two.
    setup_cpu_s=20.0,
    max_memory_bytes=GIBI,
    max_reply_bytes=16 * MEBI,
)
CHECK_CPU_S = 2.0
# Less than the stacks of the threads that run here what was checked there.
CHECK_STACK_BYTES = MEBI
# The process gives way to the engine.
CHECK_PRIORITY = 10
# Grammars that are kept for the next request; each may hold about 40 MB of lexer states.
MAX_CACHED = 16


def parser_limits() -> "LLParserLimits":
    """Returns what one grammar may take of the processor (fuel: 14,000 a millisecond in a step) and
    of memory (1 to 2 kB a lexer state). Errors do not repeat the grammar."""
    from llguidance import LLParserLimits

    return LLParserLimits(
        max_items_in_row=2_000,
        initial_lexer_fuel=1_000_000,
        step_lexer_fuel=200_000,
        step_max_items=50_000,
        max_lexer_states=30_000,
        max_grammar_size=200_000,
        verbose_errors=False,
    )
