"""Finds a model's files in the hub's cache without asking the hub."""

from collections.abc import Collection
from pathlib import Path

from paredown.errors import HubError
from paredown.files.named_file import read_named_file
from paredown.models.files.shards import INDEX_NAME, SINGLE_NAME
from paredown.models.hub.hub_name import HubName
from paredown.models.hub.hub_source import COMMIT, SNAPSHOTS
from paredown.models.hub.needed_files import CONFIG_NAME, gguf_files, shards

_MAX_REF_BYTES = 1000


def cached_commit(folder: Path, name: HubName) -> str | None:
    """Returns the commit that the revision named when it was last looked up; a commit names
    itself."""
    if COMMIT.fullmatch(name.wanted_revision):
        return name.wanted_revision
    try:
        ref = folder / "refs" / name.wanted_revision
        commit = read_named_file(ref, _MAX_REF_BYTES).decode("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return commit if COMMIT.fullmatch(commit) else None


def cached_model(folder: Path, commit: str, name: HubName) -> Path | None:
    """Returns the folder or GGUF file of a commit if all its weights are there. Weights are
    downloaded last, so the small files are there too."""
    snapshot = folder / SNAPSHOTS / commit
    if (snapshot / CONFIG_NAME).is_file() and name.file is None:
        return snapshot if _has_weights(snapshot) else None
    names = _names(snapshot)
    try:
        files = gguf_files(name, names)
    except HubError:
        return None
    return snapshot / files[0]


def _has_weights(snapshot: Path) -> bool:
    if (snapshot / SINGLE_NAME).is_file():
        return True
    named = shards(snapshot / INDEX_NAME)
    return bool(named) and all((snapshot / one).is_file() for one in named)


def _names(snapshot: Path) -> Collection[str]:
    files = (path for path in snapshot.rglob("*") if path.is_file())
    return [path.relative_to(snapshot).as_posix() for path in files]
