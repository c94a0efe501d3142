"""JsonScan: finds where a JSON value ends in a text that comes in pieces (RFC 8259)."""

import re
from enum import Enum

_BLANKS = re.compile(r"[ \t\n\r]*")
# What needs no look inside a string: neither its end, nor an escape, nor a control character.
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_ESCAPES = frozenset('"\\/bfnrt')
_HEX = frozenset("0123456789abcdefABCDEF")
# Numbers and literals end with the first character that none of them has.
_WORD = re.compile(r"[-+.0-9A-Za-z]*")
_WHOLE_WORD = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?|true|false|null")


class _Wants(Enum):
    """The next thing that may come."""

    VALUE = 1
    FIRST_ITEM = 2  # or the end of the list
    FIRST_KEY = 3  # or the end of the object
    KEY = 4
    COLON = 5
    COMMA = 6  # or the end of what is open
    STRING = 7  # the rest of a string
    ESCAPE = 8  # what stands behind a backslash
    HEX = 9  # the rest of a \u escape
    WORD = 10  # the rest of a number or literal


class JsonScan:
    """One value. After `read`, `is_whole` says that it is complete and `is_damaged` that it is no
    JSON. Strings may hold any character but unescaped controls."""

    def __init__(self) -> None:
        self.is_whole = False
        self.is_damaged = False
        self._wants = _Wants.VALUE
        self._open: list[str] = []
        self._word = ""
        self._num_hex = 0
        self._is_key = False

    def read(self, text: str, at: int) -> int:
        """Reads on from `at` and returns where it stopped: at the end of the text, behind the
        value, or at the first character that no JSON has there. A number that is the whole value
        ends with the character behind it."""
        while at < len(text) and not self.is_whole and not self.is_damaged:
            at = self._step(text, at)
        return at

    def _step(self, text: str, at: int) -> int:
        match self._wants:
            case _Wants.STRING:
                return self._string(text, at)
            case _Wants.ESCAPE:
                return self._escape(text, at)
            case _Wants.HEX:
                return self._hex(text, at)
            case _Wants.WORD:
                return self._read_word(text, at)
        found = _BLANKS.match(text, at)
        assert found is not None
        at = found.end()
        if at < len(text) and self._character(text[at]):
            return at + 1
        return at

    def _character(self, one: str) -> bool:
        """Takes a character between tokens. Returns whether it was read; a number's or a literal's
        first character is left to be read again."""
        wants = self._wants
        if wants is _Wants.COMMA:
            return self._after_value(one)
        if wants is _Wants.COLON:
            return self._go(_Wants.VALUE, is_right=one == ":")
        if wants in (_Wants.KEY, _Wants.FIRST_KEY):
            if one == "}" and wants is _Wants.FIRST_KEY:
                return self._close()
            self._is_key = True
            return self._go(_Wants.STRING, is_right=one == '"')
        if one == "]" and wants is _Wants.FIRST_ITEM:
            return self._close()
        return self._value(one)

    def _value(self, one: str) -> bool:
        if one == "{":
            self._open.append("}")
            return self._go(_Wants.FIRST_KEY)
        if one == "[":
            self._open.append("]")
            return self._go(_Wants.FIRST_ITEM)
        if one == '"':
            self._is_key = False
            return self._go(_Wants.STRING)
        if _WORD.fullmatch(one):
            self._word = ""
            self._wants = _Wants.WORD
            return False
        return self._go(_Wants.VALUE, is_right=False)

    def _after_value(self, one: str) -> bool:
        if one == self._open[-1]:
            return self._close()
        after = _Wants.KEY if self._open[-1] == "}" else _Wants.VALUE
        return self._go(after, is_right=one == ",")

    def _close(self) -> bool:
        self._open.pop()
        self._end_value()
        return True

    def _end_value(self) -> None:
        self._wants = _Wants.COMMA
        self.is_whole = not self._open

    def _go(self, wants: _Wants, *, is_right: bool = True) -> bool:
        self.is_damaged = not is_right
        self._wants = wants
        return is_right

    def _string(self, text: str, at: int) -> int:
        found = _PLAIN.match(text, at)
        assert found is not None
        at = found.end()
        if at == len(text):
            return at
        if text[at] == "\\":
            self._wants = _Wants.ESCAPE
        elif text[at] != '"':
            self.is_damaged = True
            return at
        elif self._is_key:
            self._wants = _Wants.COLON
        else:
            self._end_value()
        return at + 1

    def _escape(self, text: str, at: int) -> int:
        if text[at] == "u":
            self._num_hex = 0
            self._wants = _Wants.HEX
        elif text[at] in _ESCAPES:
            self._wants = _Wants.STRING
        else:
            self.is_damaged = True
            return at
        return at + 1

    def _hex(self, text: str, at: int) -> int:
        if text[at] not in _HEX:
            self.is_damaged = True
            return at
        self._num_hex += 1
        if self._num_hex == 4:
            self._wants = _Wants.STRING
        return at + 1

    def _read_word(self, text: str, at: int) -> int:
        found = _WORD.match(text, at)
        assert found is not None
        self._word += found[0]
        if found.end() < len(text):
            self._end_word()
        return found.end()

    def _end_word(self) -> None:
        if _WHOLE_WORD.fullmatch(self._word):
            self._end_value()
        else:
            self.is_damaged = True
