"""Memory that the control group of this process leaves it: the limit of a container or a service.

Linux, both versions of control groups (cgroups(7)). The kernel ends a process that goes beyond its
group's limit, whatever memory the machine has free.
"""

from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
# Limit, use and the file cache that can be given back, by the version's own names.
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_V2 = ("memory.max", "memory.current", "inactive_file")


def remaining_bytes(root: Path = ROOT, membership: Path = MEMBERSHIP) -> int | None:
    """The least that a group of this process or a group above it leaves; None without a limit."""
    left = [_left(folder, names) for folder, names in _groups(root, membership)]
    return min((one for one in left if one is not None), default=None)


def _groups(root: Path, membership: Path) -> Iterator[tuple[Path, tuple[str, str, str]]]:
    """Folders of the groups of this process. Inside a container its group's path is often that of
    the host, and the folder that is its own is the root."""
    try:
        lines = membership.read_text("utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        hierarchy, controllers, path = line.split(":", 2)
        if hierarchy == "0":
            top, names = root, _V2
        elif "memory" in controllers.split(","):
            top, names = root / "memory", _V1
        else:
            continue
        group = top / path.lstrip("/")
        while group != top and group.is_relative_to(top):
            yield group, names
            group = group.parent
        yield top, names


def _left(folder: Path, names: tuple[str, str, str]) -> int | None:
    limit_name, use_name, cache_name = names
    try:
        limit = (folder / limit_name).read_text("utf-8").strip()
        if limit == "max":
            return None
        used = int((folder / use_name).read_text("utf-8"))
        statistics = (folder / "memory.stat").read_text("utf-8").splitlines()
    except OSError:
        return None
    cache = next((int(row.split()[1]) for row in statistics if row.startswith(f"{cache_name} ")), 0)
    return max(0, int(limit) - used + cache)
