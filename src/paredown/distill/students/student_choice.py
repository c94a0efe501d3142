"""StudentChoice: what people type to say what a student starts as."""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from paredown.errors import ConfigError
from paredown.models.files.json_file import read_json_object

_PART = re.compile(r"(every|width)-([1-9]\d{0,3})")
_JSON = ".json"
_LEAST_EVERY = 2
_PERCENT = 100


@dataclass(frozen=True, kw_only=True)
class StudentChoice:
    """`text` as it was typed, and one of these:

    `every`, `width`  every k-th layer of the teacher, and so many percent of its width; either may
                      be None, and both together are joined by "+"
    `config`          a config.json, for a model that knows nothing yet
    `folder`          a checkpoint
    """

    text: str
    every: int | None = None
    width: int | None = None
    config: Path | None = None
    folder: Path | None = None

    @classmethod
    def parse(cls, text: str) -> "StudentChoice":
        """Raises ConfigError for anything else, and for a number that leaves the teacher as it
        is."""
        path = Path(text)
        if text and path.is_dir():
            return cls(text=text, folder=path)
        if path.suffix == _JSON and path.is_file():
            return cls(text=text, config=path)
        found: dict[str, int] = {}
        for part in text.split("+"):
            match = _PART.fullmatch(part)
            if match is None or match[1] in found:
                raise _unknown(text)
            found[match[1]] = int(match[2])
        every, width = found.get("every"), found.get("width")
        if every is not None and every < _LEAST_EVERY:
            raise ConfigError(
                "the student would be its teacher",
                seen=text,
                remedy="Give every-2 or more.",
            )
        if width is not None and width >= _PERCENT:
            raise ConfigError(
                "the student would be as wide as its teacher",
                seen=text,
                remedy="Give a percentage below 100: width-50 keeps half.",
            )
        return cls(text=text, every=every, width=width)

    @property
    def fingerprint(self) -> str:
        """Returns what the student depends on beside its teacher and the seed."""
        if self.config is None:
            return self.text
        return hashlib.sha256(repr(read_json_object(self.config)).encode()).hexdigest()


def _unknown(text: str) -> ConfigError:
    return ConfigError(
        "there is no such student",
        seen=text,
        remedy="Give every-2 for every second layer, width-50 for half of the width, "
        "every-2+width-50 for both, a config (.json), or the folder of a checkpoint.",
    )
