"""Where a user's caches lie: the folder that serves every checkpoint and every start."""

import os
from pathlib import Path


def user_cache_folder() -> Path | None:
    """$XDG_CACHE_HOME/paredown, by default ~/.cache/paredown. None where the user has no home, as
    in a container whose user number has no name."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The specification says that a relative path is to be ignored.
    if base.startswith("/"):
        return Path(base) / "paredown"
    try:
        home = Path.home()
    except RuntimeError:
        return None
    return home / ".cache" / "paredown" if home.is_absolute() else None
