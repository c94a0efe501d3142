"""Finds a model by what the user calls it."""

from pathlib import Path

from paredown.errors import CheckpointError
from paredown.models.gguf.checkpoint import is_gguf
from paredown.models.hub.hub_name import HubName

ASSETS = Path(__file__).parent.parent / "assets"
# Models that the package contains, and their folders.
PACKAGED = {"default": "default", "draft": "draft"}


def resolve_model(name: str | None) -> Path:
    """Finds the folder of a packaged model ("default", also for None, or "draft"), the folder or
    GGUF file `name`, or a model of the Hugging Face hub ("org/name", "org/name@revision",
    "org/name:file.gguf"). A hub model is fetched unless it is cached. A local path wins over the
    hub.

    Raises CheckpointError when there is no such folder or file, and HubError when the hub has no
    such model or cannot be asked.
    """
    name = "default" if name is None else name
    path = ASSETS / PACKAGED[name] if name in PACKAGED else Path(name)
    try:
        if path.is_dir() or (path.exists() and is_gguf(path)):
            return path
        is_file = path.exists()
        seen = f"{name}, a file" if is_file else name
    except OSError as error:
        is_file, seen = True, f"{name}, {error.strerror}"
    if name in PACKAGED:
        raise CheckpointError(
            f"the packaged model {name!r} is not in this installation",
            seen=f"no folder {path}",
            remedy="Install the package again, or name a checkpoint folder.",
        )
    hub_name = None if is_file else HubName.parse(name)
    if hub_name is not None:
        # Imported here because the hub client imports slowly and most models are local folders.
        from paredown.models.hub.fetch import fetch_model

        return fetch_model(hub_name)
    packaged = " or ".join(repr(known) for known in PACKAGED)
    raise CheckpointError(
        "there is no checkpoint folder or GGUF file of that name",
        seen=seen,
        remedy="Name the folder that holds config.json and model.safetensors, a .gguf file, "
        f"{packaged}, or a model of the Hugging Face hub as org/name.",
    )
