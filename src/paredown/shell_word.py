"""Quotes a word for a command that people copy into a shell. Floor 0."""

import re
import shlex

_NOT_PLAIN = re.compile(r"[\\']")


def shell_word(word: object) -> str:
    """Returns `word` as one shell word, whatever it contains: quoted where needed, with unprintable
    characters as $'\\x1b', which bash, zsh and ksh understand."""
    text = str(word)
    if text.isprintable():
        return shlex.quote(text)
    return "$'" + "".join(map(_escaped, text)) + "'"


def shell_path(path: object) -> str:
    """Returns a file or folder as a word that no command takes for an option."""
    text = str(path)
    return shell_word(f"./{text}" if text.startswith("-") else text)


def _escaped(one: str) -> str:
    if one.isprintable():
        return _NOT_PLAIN.sub(r"\\\g<0>", one)
    # Python represents bytes of a file name that are not UTF-8 as surrogates.
    is_byte = 0xDC80 <= ord(one) <= 0xDCFF
    data = one.encode(errors="surrogateescape" if is_byte else "surrogatepass")
    return "".join(f"\\x{byte:02x}" for byte in data)
