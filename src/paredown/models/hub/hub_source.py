"""HubSource: which repository and commit a checkpoint in the hub's cache came from."""

import re
from dataclasses import dataclass
from pathlib import Path

COMMIT = re.compile(r"[0-9a-f]{40}", re.ASCII)
SNAPSHOTS = "snapshots"
_PREFIX = "models--"


@dataclass(frozen=True, kw_only=True)
class HubSource:
    """`file` is the GGUF file within the repository; None for a folder."""

    repository: str
    commit: str
    file: str | None = None

    @classmethod
    def of(cls, path: Path) -> "HubSource | None":
        """Reads it off the path of a folder or a file in the cache; None for any other path."""
        parts = path.absolute().parts
        for index in range(len(parts) - 2):
            folder, snapshots, commit = parts[index : index + 3]
            if (
                folder.startswith(_PREFIX)
                and snapshots == SNAPSHOTS
                and COMMIT.fullmatch(commit) is not None
            ):
                repository = folder.removeprefix(_PREFIX).replace("--", "/", 1)
                file = "/".join(parts[index + 3 :]) or None
                return cls(repository=repository, commit=commit, file=file)
        return None

    def as_json(self) -> dict[str, object]:
        """For a proof; `file` only where there is one."""
        file = {} if self.file is None else {"file": self.file}
        return {"repository": self.repository, "commit": self.commit, **file}


def repository_folder(cache: Path, repository: str) -> Path:
    """Where the cache keeps a repository."""
    return cache / f"{_PREFIX}{repository.replace('/', '--')}"


def model_name(path: Path) -> str:
    """The name that people know the checkpoint by: its folder or file, and the repository's name
    where a folder's own is a commit."""
    source = HubSource.of(path)
    if source is None:
        return path.resolve().name
    return (source.file or source.repository).rsplit("/", 1)[-1]
