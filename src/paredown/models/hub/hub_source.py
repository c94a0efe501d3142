"""HubSource: which repository and commit a checkpoint in the hub's cache came from."""

import re
from dataclasses import dataclass
from pathlib import Path

COMMIT = re.compile(r"[0-9a-f]{40}", re.ASCII)
SNAPSHOTS = "snapshots"
_PREFIX = "models--"


@dataclass(frozen=True, kw_only=True)
class HubSource:
    """The origin of a checkpoint. `file` is the GGUF file within the repository; None for a
    folder."""

    repository: str
    commit: str
    file: str | None = None

    @classmethod
    def of(cls, path: Path) -> "HubSource | None":
        """Reads the source from the path of a cached folder or file; returns None for any other
        path."""
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
        """Returns the entry for a proof; it has `file` only for a GGUF file."""
        file = {} if self.file is None else {"file": self.file}
        return {"repository": self.repository, "commit": self.commit, **file}


def repository_folder(cache: Path, repository: str) -> Path:
    """Returns the cache folder of a repository."""
    return cache / f"{_PREFIX}{repository.replace('/', '--')}"


def model_name(path: Path) -> str:
    """Returns the name by which people know the checkpoint: that of its folder or file, or the
    repository's where the folder's own is a commit."""
    source = HubSource.of(path)
    if source is None:
        return path.resolve().name
    return (source.file or source.repository).rsplit("/", 1)[-1]
