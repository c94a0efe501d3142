"""Texts that an attacker would choose, and a check for what must never be shown."""

import unicodedata

from hypothesis import strategies as st

# A window title, colours, a carriage return over a line, an extra line, direction marks,
# surrogates, raw bytes of a file name, tags, fillers, and markup of rich and LaTeX.
HOSTILE = (
    "\x1b]0;title\x07",
    "\x1b[31mred\x1b[0m",
    "\x9b2J",
    "good\rbad",
    "a\nverified: all of it",
    "\u202egnp.exe\u202c",
    "\u2066\u200f\u061c",
    "\ud800",
    "\udc9b31m",
    "\U000e0041\u3164\u200b",
    "[red]a[/red][link=http://x]b[/]",
    "[/]",
    "$x^$",
    "a\x7fb\u2028c\x85d",
    "'; touch pwned; '",
    "`touch pwned`$(touch pwned)",
)
texts = st.one_of(
    st.text(st.characters(), max_size=80),
    st.lists(st.sampled_from(HOSTILE), max_size=4).map("".join),
    st.sampled_from(HOSTILE).map(lambda text: text * 400),
)
_UNSEEN = "\u034f\u115f\u1160\u3164\uffa0\u2800\ufe0f\U000e0100"


def is_safe(text: str, *, newlines: bool = False) -> bool:
    """Returns whether the text has no control, format, private or invisible character and no
    surrogate."""
    return not any(
        unicodedata.category(one) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") or one in _UNSEEN
        for one in (text.replace("\n", "") if newlines else text)
    )
