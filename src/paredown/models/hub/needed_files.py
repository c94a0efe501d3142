"""Selects the files of a repository that a checkpoint needs."""

import re
from collections.abc import Collection
from pathlib import Path

from paredown.errors import CheckpointError, HubError
from paredown.models.files.json_file import MAX_TABLE_BYTES, read_json_object
from paredown.models.files.shards import INDEX_NAME, SINGLE_NAME
from paredown.models.hub.hub_name import HubName

CONFIG_NAME = "config.json"
# Matches every small file that describes the model. Weights are selected one by one.
_SMALL = re.compile(
    r"[^/]+\.(json|jinja|txt|model)|additional_chat_templates/[^/]+\.jinja"
    r"|artifact\.metadata|\d+_\w+/config\.json"
)
# The weights of an encoder's modules, in folders of their own.
_MODULE_WEIGHTS = re.compile(r"\d+_\w+/model\.safetensors")
_PART = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.IGNORECASE)
# The mark of weights for pictures and sound, beside the language model's.
_PROJECTOR = "mmproj"
_SHOWN = 12


def small_files(names: Collection[str]) -> list[str]:
    """Returns config, tokenizer, templates, proofs, licences and the configs of an encoder's
    modules; never code, pictures or other weights."""
    return sorted(name for name in names if _SMALL.fullmatch(name))


def weight_files(name: HubName, names: Collection[str], folder: Path) -> list[str]:
    """Returns the safetensors files that `models/files/shards.py` would read, after those of an
    encoder's modules. An index, if any, must already be in `folder`. Raises HubError for a
    repository without any."""
    of_modules = sorted(one for one in names if _MODULE_WEIGHTS.fullmatch(one))
    if SINGLE_NAME in names:
        return [*of_modules, SINGLE_NAME]
    if INDEX_NAME in names:
        return [*of_modules, *shards(folder / INDEX_NAME)]
    raise HubError(
        f"{name.repository} holds no weights in safetensors form",
        seen=_shown(names),
        remedy="Name another repository of this model, or a GGUF file as org/name:file.gguf.",
    )


def shards(index: Path) -> list[str]:
    """Returns the file names in an index; none for a damaged one, which is reported when the folder
    is opened."""
    try:
        weight_map = read_json_object(index, MAX_TABLE_BYTES).get("weight_map")
    except CheckpointError:
        return []
    names = weight_map.values() if isinstance(weight_map, dict) else ()
    found = {name for name in names if isinstance(name, str) and Path(name).name == name}
    return sorted(found)


def gguf_files(name: HubName, names: Collection[str]) -> list[str]:
    """Returns the GGUF file that the name asks for; a split one as all its parts, the first one
    first. A part of a file name is enough where it fits only one file. Raises HubError for none or
    several."""
    files = [one for one in names if one.lower().endswith(".gguf")]
    wanted = name.file
    found = [one for one in files if one == wanted]
    if not found:
        models = [one for one in files if not one.rsplit("/", 1)[-1].startswith(_PROJECTOR)]
        found = [one for one in models if wanted is None or _has_tag(one, wanted)]
    sets: dict[str, list[str]] = {}
    for one in sorted(found):
        part = _PART.fullmatch(one)
        sets.setdefault(one if part is None else part["stem"], []).append(one)
    if len(sets) != 1:
        problem = "no GGUF file" if not sets else "several GGUF files"
        asked = "" if wanted is None else f" that {wanted!r} names"
        raise HubError(
            f"{name.repository} holds {problem}{asked}",
            seen=_shown(found or files or names),
            remedy=f"Name one file, as {name.repository}:file.gguf.",
        )
    return _all_parts(next(iter(sets.values()))[0], files, name)


def _has_tag(file: str, tag: str) -> bool:
    """Returns whether `tag` is a whole word of the file's name: Q4_K is not in Q4_K_M."""
    pattern = rf"(?<![A-Za-z0-9_]){re.escape(tag)}(?![A-Za-z0-9_])"
    return re.search(pattern, file.rsplit("/", 1)[-1], re.IGNORECASE) is not None


def _all_parts(file: str, files: Collection[str], name: HubName) -> list[str]:
    part = _PART.fullmatch(file)
    if part is None:
        return [file]
    count = int(part["count"])
    parts = [
        f"{part['stem']}-{number:05}-of-{part['count']}.gguf" for number in range(1, count + 1)
    ]
    missing = [one for one in parts if one not in files]
    if missing or not parts:
        raise HubError(
            f"{name.repository} lacks parts of a split GGUF file",
            seen=f"no {', '.join(missing[:_SHOWN])}",
            remedy="Name another file or revision of this repository.",
        )
    return parts


def _shown(names: Collection[str]) -> str:
    listed = sorted(names)
    more = f", and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return (", ".join(listed[:_SHOWN]) or "no files") + more
