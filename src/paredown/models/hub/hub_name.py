"""HubName: a model's name on the Hugging Face hub."""

import re
from dataclasses import dataclass

_PART = r"[A-Za-z0-9][\w.-]*"
_NAME = re.compile(
    rf"(?P<repository>{_PART}/{_PART})(@(?P<revision>[\w./-]+))?(:(?P<file>[\w./+ -]+))?", re.ASCII
)
_LONGEST_REPOSITORY = 96


@dataclass(frozen=True, kw_only=True)
class HubName:
    """`org/name`, `org/name@revision`, `org/name:file.gguf` or `org/name@revision:file.gguf`.

    `revision`  a branch, a tag or a commit; None: main
    `file`      a GGUF file of the repository, or a part of its name such as Q4_K_M
    """

    repository: str
    revision: str | None = None
    file: str | None = None

    @classmethod
    def parse(cls, text: str) -> "HubName | None":
        """Parses a name; returns None for a text that can only be a path."""
        match = _NAME.fullmatch(text)
        if match is None:
            return None
        repository, file = match["repository"], match["file"]
        is_long = len(repository) > _LONGEST_REPOSITORY
        # The hub has no such names, and they would make a cache folder ambiguous.
        is_odd = ".." in repository or "--" in repository or repository.endswith((".git", "-", "."))
        is_path = file is None and repository.lower().endswith((".gguf", ".json"))
        climbs = any(part in ("", ".", "..") for part in re.split("/", file or "x"))
        revision = match["revision"]
        climbs |= any(part in ("", ".", "..") for part in re.split("/", revision or "x"))
        if is_long or is_odd or is_path or climbs:
            return None
        return cls(repository=repository, revision=revision, file=file)

    @property
    def wanted_revision(self) -> str:
        return self.revision or "main"

    def __str__(self) -> str:
        revision = "" if self.revision is None else f"@{self.revision}"
        return f"{self.repository}{revision}" + ("" if self.file is None else f":{self.file}")
