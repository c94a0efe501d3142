"""Checks the path of a picture, for the verbs that draw one."""

from pathlib import Path

from paredown.errors import ConfigError, OutputError
from paredown.evaluate.pictures.picture import require_matplotlib


def check_picture_path(
    path: Path | None, option: str = "--plot", suffixes: tuple[str, ...] = (".png",)
) -> None:
    """Checks before any work. Raises ConfigError for another suffix, OutputError where nothing can
    be written, and UnsupportedError without matplotlib."""
    if path is None:
        return
    if path.suffix not in suffixes:
        kinds = " and ".join(one[1:].upper() for one in suffixes)
        raise ConfigError(
            f"{option} writes {kinds}", seen=path, remedy=f"End it in {' or '.join(suffixes)}."
        )
    if path.exists():
        raise OutputError(f"{path} exists already", seen=path, remedy="Remove it, or name another.")
    if not path.parent.is_dir():
        raise OutputError(
            f"{path} could not be written",
            seen=f"no folder {path.parent}",
            remedy="Make the folder, or name another place.",
        )
    require_matplotlib(f"leave {option} out")
