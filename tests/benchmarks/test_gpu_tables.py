"""The roofline and its fit against tables of measured GPU times (where the shared data is)."""

from pathlib import Path

import pytest

from benchmarks.gpu_tables import (
    MAX_ERROR,
    TABLES,
    across,
    check_table,
    read_products,
    split,
)
from drivers.shared_data import data_folder, needs_data
from paredown.cost.efficiency import EFFICIENCIES, Efficiency, MeasuredProduct, fit_efficiency
from paredown.cost.machines import MACHINES

FOLDER = (data_folder("perf_tables") or Path()) / "vidur"
with_tables = needs_data("perf_tables")


@with_tables
@pytest.mark.parametrize("name", TABLES)
def test_the_roofline_is_never_above_what_was_measured_and_the_fit_holds(name: str) -> None:
    machine, file = TABLES[name]
    row = check_table(name, machine, FOLDER / file)
    assert row.num_rows > 4000
    assert 0.3 < row.best_share <= 1
    assert row.held_out_rows > row.num_rows // 4
    assert row.held_out_error <= MAX_ERROR


@with_tables
def test_what_was_fitted_to_one_model_holds_for_another() -> None:
    assert across(FOLDER) <= MAX_ERROR


@with_tables
@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_the_shares_in_the_source_are_those_of_the_tables(machine: str) -> None:
    files = [file for key, file in TABLES.values() if key == machine]
    kept = [one for file in files for one in split(read_products(FOLDER / file))[0]]
    fit = fit_efficiency(kept, MACHINES[machine], machine)
    known = EFFICIENCIES[machine]
    assert known.call_s == pytest.approx(fit.call_s, rel=0.02)
    assert known.arithmetic == pytest.approx(fit.arithmetic, rel=0.02)
    assert known.memory == pytest.approx(fit.memory, rel=0.02)


def test_columns_of_a_table_become_products(tmp_path: Path) -> None:
    names = ("attn_pre_proj", "attn_post_proj", "mlp_up_proj", "mlp_down_proj")
    header = ",".join(f"time_stats.{name}.median" for name in names)
    sizes = "n_head,n_kv_head,n_embd,n_expanded_embd,num_tokens,num_tensor_parallel_workers"
    path = tmp_path / "table.csv"
    path.write_text(f"{header},{sizes}\n1,2,3,4,8,2,64,256,10,2\n")
    found = read_products(path)
    assert [tokens for tokens, _ in found] == [10] * 4
    # q, k and v of 8, 2 and 2 heads of 8 columns, halved: 48 rows of 64 columns.
    assert found[0][1] == MeasuredProduct(
        flops=2 * 10 * 48 * 64, bytes=2 * (48 * 64 + 10 * 64 + 10 * 48), seconds=1e-3
    )
    assert found[3][1] == MeasuredProduct(
        flops=2 * 10 * 64 * 128, bytes=2 * (64 * 128 + 10 * 128 + 10 * 64), seconds=4e-3
    )


def test_a_fit_finds_the_shares_it_was_made_with() -> None:
    roofs = MACHINES["h100"]
    truth = Efficiency(call_s=5e-6, arithmetic=0.7, memory=0.9, source="made up")
    products = []
    for tokens in (1, 16, 256, 4096):
        for size in (1024, 8192):
            one = MeasuredProduct(
                flops=2.0 * tokens * size**2, bytes=2.0 * (size**2 + 2 * tokens * size), seconds=1
            )
            seconds = one.predicted_s(roofs, truth)
            products.append(MeasuredProduct(flops=one.flops, bytes=one.bytes, seconds=seconds))
    found = fit_efficiency(products, roofs, "found")
    assert found.call_s == pytest.approx(truth.call_s, rel=1e-3)
    assert found.arithmetic == pytest.approx(truth.arithmetic, rel=1e-3)
    assert found.memory == pytest.approx(truth.memory, rel=1e-3)
