"""Where a model named on the command line lies."""

from pathlib import Path

from paredown.errors import CheckpointError
from paredown.models.gguf.checkpoint import is_gguf

ASSETS = Path(__file__).parent.parent / "assets"
# Names of models that come with the package, and their folders.
PACKAGED = {"default": "default", "draft": "draft"}


def resolve_model(name: str | None) -> Path:
    """The folder of a packaged model ("default", also for None, or "draft"), or the folder or the
    GGUF file `name`.

    Raises CheckpointError when there is no such folder or file.
    """
    name = "default" if name is None else name
    path = ASSETS / PACKAGED[name] if name in PACKAGED else Path(name)
    try:
        if path.is_dir() or (path.exists() and is_gguf(path)):
            return path
        seen = f"{name}, a file" if path.exists() else name
    except OSError as error:
        seen = f"{name}, {error.strerror}"
    if name in PACKAGED:
        raise CheckpointError(
            f"the packaged model {name!r} is not in this installation",
            seen=f"no folder {path}",
            remedy="Install the package again, or name a checkpoint folder.",
        )
    packaged = " or ".join(repr(known) for known in PACKAGED)
    raise CheckpointError(
        "there is no checkpoint folder or GGUF file of that name",
        seen=seen,
        remedy="Name the folder that holds config.json and model.safetensors, a .gguf file, or "
        f"{packaged}.",
    )
