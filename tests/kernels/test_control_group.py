"""The memory limit of a container counts as much as the machine's own."""

from pathlib import Path

import pytest

from paredown.kernels import probe
from paredown.kernels.control_group import core_quota, remaining_bytes


def write_group(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(f"{content}\n")


def membership(folder: Path, text: str) -> Path:
    path = folder / "membership"
    path.write_text(text)
    return path


STAT = "anon 5\ninactive_file 100\ntotal_inactive_file 100"


@pytest.mark.parametrize(
    ("outer", "inner", "left"),
    [("max", "max", None), ("max", 1000, 800), (900, 1000, 700), (1000, 900, 700), (200, 300, 0)],
)
def test_version_2_takes_the_tightest_group(
    outer: object, inner: object, left: int | None, tmp_path: Path
) -> None:
    group = {"memory__current": 300, "memory__stat": STAT}
    write_group(tmp_path / "service", memory__max=outer, **group)
    write_group(tmp_path / "service" / "own", memory__max=inner, **group)
    write_group(tmp_path)
    assert remaining_bytes(tmp_path, membership(tmp_path, "0::/service/own\n")) == left


def test_version_1_inside_a_container_whose_path_is_the_hosts(tmp_path: Path) -> None:
    write_group(
        tmp_path / "memory",
        memory__limit_in_bytes=1000,
        memory__usage_in_bytes=400,
        memory__stat=STAT,
    )
    mine = membership(tmp_path, "5:cpu,cpuacct:/x\n4:memory:/docker/a:b\n0::/\n")
    assert remaining_bytes(tmp_path, mine) == 700


def test_without_control_groups_there_is_no_limit(tmp_path: Path) -> None:
    assert remaining_bytes(tmp_path, tmp_path / "nowhere") is None
    assert remaining_bytes(tmp_path, membership(tmp_path, "0::/../elsewhere\n")) is None


def test_what_is_available_is_the_lesser_of_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "remaining_bytes", lambda: 12345)
    assert probe.available_memory_bytes() == 12345
    monkeypatch.setattr(probe, "remaining_bytes", lambda: 1 << 62)
    assert 12345 < probe.available_memory_bytes() <= probe.memory_bytes()


@pytest.mark.parametrize(
    ("outer", "inner", "cores"),
    [
        ("max 100000", "max 100000", None),
        ("max 100000", "150000 100000", 1.5),
        ("200000 100000", "max 100000", 2.0),
        ("200000 50000", "300000 100000", 3.0),
    ],
)
def test_version_2_takes_the_tightest_quota_of_time(
    outer: str, inner: str, cores: float | None, tmp_path: Path
) -> None:
    write_group(tmp_path / "service", cpu__max=outer)
    write_group(tmp_path / "service" / "own", cpu__max=inner)
    assert core_quota(tmp_path, membership(tmp_path, "0::/service/own\n")) == cores


@pytest.mark.parametrize(("quota", "cores"), [(-1, None), (50000, 0.5), (400000, 4.0)])
def test_version_1_has_its_quota_in_two_files(
    quota: int, cores: float | None, tmp_path: Path
) -> None:
    write_group(tmp_path / "cpu", cpu__cfs_quota_us=quota, cpu__cfs_period_us=100000)
    assert core_quota(tmp_path, membership(tmp_path, "5:cpu,cpuacct:/x\n0::/\n")) == cores


def test_version_1_mounted_with_another_controller(tmp_path: Path) -> None:
    folder = tmp_path / "cpu,cpuacct" / "service"
    write_group(folder, cpu__cfs_quota_us=150000, cpu__cfs_period_us=100000)
    assert core_quota(tmp_path, membership(tmp_path, "5:cpu,cpuacct:/service\n")) == 1.5


@pytest.mark.parametrize(
    ("quota", "num_cores", "num_threads"), [(None, 4, 4), (2.9, 4, 2), (8.0, 4, 4), (0.5, 4, 1)]
)
def test_no_more_threads_than_the_quota_pays_for(
    quota: float | None, num_cores: int, num_threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "core_quota", lambda: quota)
    monkeypatch.setattr(probe, "num_cores", lambda: num_cores)
    assert probe.resolve_num_threads(None) == num_threads
    assert probe.resolve_num_threads(num_cores) == num_cores
