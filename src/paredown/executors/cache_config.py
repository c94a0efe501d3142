"""CacheConfig: where the packed weights of checkpoints are kept on disk."""

import os
from dataclasses import dataclass
from pathlib import Path

from paredown.errors import ConfigError
from paredown.units import GIBI, MEBI

VARIABLE = "PAREDOWN_CACHE"


@dataclass(frozen=True, kw_only=True)
class CacheConfig:
    """`folder`            the only place; None: next to the checkpoint, else the user's cache
    `min_bytes`         packed weights below this are packed in less time than they are worth
    `max_folder_bytes`  the user's cache folder, or `folder`, drops its oldest files beyond this
    """

    folder: Path | None = None
    min_bytes: int = 64 * MEBI
    max_folder_bytes: int = 32 * GIBI

    @classmethod
    def from_environment(cls) -> "CacheConfig | None":
        """PAREDOWN_CACHE: "off" (None is returned), a folder, or nothing for the default places.
        Raises ConfigError for what is not a folder."""
        value = os.environ.get(VARIABLE, "")
        if value == "off":
            return None
        if not value:
            return cls()
        folder = Path(value)
        if folder.exists() and not folder.is_dir():
            raise ConfigError(
                f"{VARIABLE} does not name a folder",
                seen=value,
                remedy=f"Set {VARIABLE} to a folder, to off, or not at all.",
            )
        return cls(folder=folder)
