"""The measured limits, the choice of instruction set, and what `doctor` tells of them."""

import json

import pytest

from paredown.cli.main import main
from paredown.errors import ConfigError
from paredown.kernels import _core, probe
from paredown.kernels import isa as isa_module
from paredown.kernels.isa import (
    ENVIRONMENT_VARIABLE,
    chosen_isa,
    explain_isa,
    known_isas,
    supported_isas,
    unavailable_isas,
)
from paredown.kernels.probe import measure_machine, num_cores, resolve_num_threads
from paredown.spec.kv import KV_DTYPES


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


def test_a_known_set_is_supported_or_says_why_not() -> None:
    assert set(supported_isas()).isdisjoint(unavailable_isas())
    assert set(supported_isas()) | set(unavailable_isas()) == set(known_isas())
    assert [isa for isa in known_isas() if isa not in unavailable_isas()] == supported_isas()


def test_forcing_a_set_that_cannot_run_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    reasons = [("generic", ""), ("amx", "the processor lacks AMX int8 or bf16")]
    monkeypatch.setattr(isa_module._core, "known_isas", lambda: reasons)
    monkeypatch.setattr(isa_module._core, "supported_isas", lambda: ["generic"])
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "amx")
    with pytest.raises(ConfigError, match=r"lacks AMX.*Use one of generic"):
        chosen_isa()


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


def test_at_most_all_cores_by_default() -> None:
    assert 1 <= resolve_num_threads(None) <= num_cores()


def test_a_machine_with_more_cores_than_a_pool_has_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "num_cores", lambda: 384)
    monkeypatch.setattr(probe, "core_quota", lambda: None)
    assert resolve_num_threads(None) == _core.MAX_THREADS == 255
    with pytest.raises(ConfigError, match="Use 1 to 255"):
        resolve_num_threads(256)


def test_an_unknown_unit_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown unit"):
        _core.measure_peak("", 1, "fp64")


def test_doctor_prints_the_machine_as_a_table_and_as_json(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["doctor", "--threads", "1"]) == 0
    printed = capsys.readouterr().out
    for word in (
        "memory bandwidth",
        "int8 peak",
        "bf16 peak",
        "fp32 peak",
        "instruction set",
        "attention",
        "int4-g32",
    ):
        assert word in printed
    assert main(["doctor", "--threads", "1", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["machine"]["isa"] in result["supported_isas"]
    assert set(result["unavailable_isas"]).isdisjoint(result["supported_isas"])
    rows = {(row["operation"], row["dtype"]) for row in result["kernels"]}
    assert rows >= {("linear", "int3-g32"), ("linear", "bf16"), ("attention", "bf16")}
    assert {dtype for operation, dtype in rows if operation == "attention"} == set(KV_DTYPES)
