"""Reads modules.json of sentence-transformers: the parts of an encoder, and the folder of each."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from paredown.errors import CheckpointError, UnsupportedError
from paredown.models.families.fields import Fields
from paredown.models.files.json_file import read_json_list, read_optional_json_object
from paredown.models.files.whole_file import is_there
from paredown.shown import quoted

MODULES = "modules.json"
CONFIG = "config.json"
# Modules of other packages come with code of their own.
_PACKAGES = ("sentence_transformers.", "pylate.")
_MAX_MODULES = 100


@dataclass(frozen=True, kw_only=True)
class Module:
    """One part: its class ("Pooling"), its folder inside the checkpoint's ("1_Pooling", "" for the
    checkpoint itself), and the fields of its config."""

    kind: str
    folder: str
    fields: Fields


def read_modules(path: Path) -> tuple[Module, ...]:
    """Returns the modules of the folder `path` in order; none where it has no modules.json. Raises
    CheckpointError for a damaged list, and UnsupportedError for modules with code of their own."""
    if not is_there(path / MODULES):
        return ()
    entries = read_json_list(path / MODULES)
    if not entries or len(entries) > _MAX_MODULES:
        raise _wrong(path, f"{len(entries)} modules", f"from 1 to {_MAX_MODULES} modules")
    return tuple(_module(path, entry) for entry in entries)


def _module(path: Path, entry: object) -> Module:
    if not isinstance(entry, Mapping):
        raise _wrong(path, entry, "modules as objects")
    name, folder = entry.get("type"), entry.get("path", "")
    if not isinstance(name, str) or not isinstance(folder, str):
        raise _wrong(path, entry, "a type and a path for each module")
    if not name.startswith(_PACKAGES):
        raise UnsupportedError(
            f"{path / MODULES} names a module with code of its own",
            seen=quoted(name, 200),
            remedy="Only modules of sentence-transformers and PyLate are read; no code of a model "
            "is run.",
        )
    is_name = Path(folder).name == folder and folder != ".." and folder.isprintable()
    if folder and not is_name:
        raise _wrong(path, folder, "folders inside the checkpoint's")
    kind = name.rpartition(".")[2]
    config: dict[str, object] = {}
    if folder:
        config = read_optional_json_object(path / folder / CONFIG, path)
    return Module(kind=kind, folder=folder, fields=Fields(config, f"{path / folder / CONFIG}"))


def _wrong(path: Path, seen: object, wanted: str) -> CheckpointError:
    return CheckpointError(
        f"{path / MODULES} does not hold {wanted}",
        seen=quoted(seen, 200),
        remedy="Correct the file, or download it again.",
    )
