"""The table of machines: peaks by hand, sources, and names."""

import pytest

from paredown.cost.efficiency import EFFICIENCIES
from paredown.cost.machines import MACHINES, find_machine
from paredown.errors import ConfigError


@pytest.mark.parametrize(
    ("key", "int8_tera", "gigabytes"),
    [
        ("epyc-genoa", 96 * 3.55 * 0.128, 768),
        ("epyc-turin", 128 * 2.7 * 0.256, 768),
        ("xeon-spr", 56 * 2.0 * 2.048, 512),
        ("xeon-emr", 64 * 1.9 * 2.048, 512),
        ("graviton3", 64 * 2.6 * 0.256, 128),
        ("graviton4", 96 * 2.8 * 0.256, 768),
    ],
)
def test_a_processor_has_cores_times_clock_times_operations(
    key: str, int8_tera: float, gigabytes: int
) -> None:
    roofs = MACHINES[key]
    assert roofs.int8_ops_per_s == pytest.approx(1e12 * int8_tera)
    assert roofs.bf16_flops_per_s == pytest.approx(roofs.int8_ops_per_s / 2)
    assert roofs.memory_bytes == gigabytes * 10**9
    assert roofs.activation_bytes == 4


@pytest.mark.parametrize(
    ("key", "channels", "transfers"),
    [
        ("epyc-genoa", 12, 4800),
        ("epyc-turin", 12, 6000),
        ("xeon-spr", 8, 4800),
        ("xeon-emr", 8, 5600),
        ("graviton3", 8, 4800),
        ("graviton4", 12, 5600),
    ],
)
def test_its_memory_has_eight_bytes_for_each_transfer_of_a_channel(
    key: str, channels: int, transfers: int
) -> None:
    """As the name of the machine has it."""
    assert MACHINES[key].bandwidth_bytes_per_s == pytest.approx(channels * transfers * 8e6)
    assert f"{channels} x DDR5-{transfers}" in MACHINES[key].name


@pytest.mark.parametrize("key", ["a100-40gb", "a100", "h100", "h100-pcie", "h200", "l4", "l40s"])
def test_a_gpu_keeps_two_bytes_between_operations(key: str) -> None:
    roofs = MACHINES[key]
    assert roofs.activation_bytes == 2
    assert roofs.int8_ops_per_s == pytest.approx(2 * roofs.bf16_flops_per_s, rel=0.02)
    assert f"{roofs.memory_bytes // 10**9} GB" in roofs.name


def test_machines_have_sources_and_sane_roofs() -> None:
    for roofs in MACHINES.values():
        assert roofs.source.startswith("https://")
        assert 100e9 < roofs.bandwidth_bytes_per_s < 10e12
        assert roofs.int8_ops_per_s >= roofs.bf16_flops_per_s > roofs.fp32_flops_per_s
    assert set(EFFICIENCIES) <= set(MACHINES)


def test_an_unknown_machine_lists_ours() -> None:
    with pytest.raises(ConfigError, match=r"abacus.*this.*h100.*graviton4"):
        find_machine("abacus")
    assert find_machine(" H100 ") is MACHINES["h100"]
