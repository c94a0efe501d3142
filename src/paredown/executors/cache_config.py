"""CacheConfig: where the packed weights of checkpoints are kept on disk."""

import os
from dataclasses import dataclass
from pathlib import Path

from paredown.files.user_cache import OFF, VARIABLE, check_named_cache, named_cache
from paredown.units import GIBI, MEBI


@dataclass(frozen=True, kw_only=True)
class CacheConfig:
    """`folder`            must belong to the user; None: the cache folder of files/user_cache.py
    `min_bytes`         smaller packed weights are not kept, since packing them again is quick
    `max_folder_bytes`  beyond this size the folder drops its oldest files
    """

    folder: Path | None = None
    min_bytes: int = 64 * MEBI
    max_folder_bytes: int = 32 * GIBI

    @classmethod
    def from_environment(cls) -> "CacheConfig | None":
        """Reads PAREDOWN_CACHE: "off" (returns None), a folder, or nothing for the default folder.
        Raises ConfigError unless it is a folder that only the user can write to."""
        if os.environ.get(VARIABLE) == OFF:
            return None
        folder = named_cache()
        if folder is not None:
            check_named_cache(folder)
        return cls(folder=folder)
