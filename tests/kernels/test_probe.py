"""The measured limits, the choice of instruction set, and what `doctor` tells of them."""

import json

import pytest

from paredown.cli.main import main
from paredown.errors import ConfigError
from paredown.kernels import _core
from paredown.kernels.explain import explain_isa, explain_kernels
from paredown.kernels.isa import ENVIRONMENT_VARIABLE, chosen_isa, supported_isas
from paredown.kernels.probe import default_num_threads, measure_machine, resolve_num_threads


def test_limits_are_of_a_plausible_order() -> None:
    machine = measure_machine(1)
    assert 1e8 < machine.bandwidth_bytes_per_s < 1e13
    assert 1e8 < machine.fp32_flops_per_s < 1e13
    # Four products a lane instead of one: int8 is never slower than fp32 by much.
    assert machine.int8_ops_per_s > 0.5 * machine.fp32_flops_per_s
    assert machine.num_threads == 1
    assert machine.memory_bytes > 1e8


def test_the_best_instruction_set_is_chosen_and_another_can_be_forced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(ENVIRONMENT_VARIABLE, raising=False)
    assert chosen_isa() == supported_isas()[-1]
    for isa in supported_isas():
        monkeypatch.setenv(ENVIRONMENT_VARIABLE, isa)
        assert chosen_isa() == isa
        assert isa in explain_isa()
        assert {row.dtype for row in explain_kernels(isa)} == {
            "fp32",
            "fp16",
            "bf16",
            "int8",
            "int4",
        }


def test_an_instruction_set_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "sparc_v9")
    with pytest.raises(ConfigError, match=r"sparc_v9.*Use one of generic"):
        chosen_isa()
    assert main(["doctor"]) == 2


@pytest.mark.parametrize("num_threads", [0, -1, 10**6])
def test_a_senseless_number_of_threads_is_refused(num_threads: int) -> None:
    with pytest.raises(ConfigError, match="number of threads"):
        resolve_num_threads(num_threads)
    assert main(["doctor", "--threads", str(num_threads)]) == 2


def test_all_cores_by_default() -> None:
    assert resolve_num_threads(None) == default_num_threads() >= 1


def test_an_unknown_unit_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown unit"):
        _core.measure_peak("", 1, "fp64")


def test_doctor_prints_the_machine_as_a_table_and_as_json(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["doctor", "--threads", "1"]) == 0
    printed = capsys.readouterr().out
    for word in ("memory bandwidth", "int8 peak", "bf16 peak", "fp32 peak", "instruction set"):
        assert word in printed
    assert main(["doctor", "--threads", "1", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["machine"]["isa"] in result["supported_isas"]
    assert {row["dtype"] for row in result["kernels"]} >= {"int4", "int8", "bf16"}
