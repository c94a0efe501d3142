"""The memory and processor time that this process's control group allows: the limits of a
container or service.

This reads both versions of Linux control groups (cgroups(7)). The kernel kills a process that
exceeds its group's memory. It stops one that has used up its time until the next period begins.
"""

from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
# The files of limit, use, and reclaimable file cache, by their names in that version.
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_V2 = ("memory.max", "memory.current", "inactive_file")


def remaining_bytes(root: Path = ROOT, membership: Path = MEMBERSHIP) -> int | None:
    """Returns the least memory that a group of this process, or a group above it, has left; None
    without a limit."""
    groups = _groups("memory", root, membership)
    left = [_left(folder, _V2 if unified else _V1) for folder, unified in groups]
    return min((one for one in left if one is not None), default=None)


def core_quota(root: Path = ROOT, membership: Path = MEMBERSHIP) -> float | None:
    """Returns the allowed time per period in cores, the least over the groups of this process;
    None without a limit."""
    groups = _groups("cpu", root, membership)
    quotas = [_quota(folder, unified) for folder, unified in groups]
    return min((one for one in quotas if one is not None), default=None)


def _groups(controller: str, root: Path, membership: Path) -> Iterator[tuple[Path, bool]]:
    """Yields the folders of this process's groups, and whether they are of version 2. Inside a
    container the group's path is often the host's, while its own folder is the root."""
    try:
        lines = membership.read_text("utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        hierarchy, controllers, path = line.split(":", 2)
        if hierarchy == "0":
            top, unified = root, True
        elif controller in controllers.split(","):
            # Some systems mount "cpu,cpuacct" together and link no name of its own to it.
            apart = root / controller
            top, unified = apart if apart.is_dir() else root / controllers, False
        else:
            continue
        group = top / path.lstrip("/")
        while group != top and group.is_relative_to(top):
            yield group, unified
            group = group.parent
        yield top, unified


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


def _quota(folder: Path, unified: bool) -> float | None:
    try:
        if unified:
            limit, period = (folder / "cpu.max").read_text("utf-8").split()
        else:
            limit = (folder / "cpu.cfs_quota_us").read_text("utf-8").strip()
            period = (folder / "cpu.cfs_period_us").read_text("utf-8").strip()
    except OSError:
        return None
    return None if limit in ("max", "-1") else int(limit) / int(period)
