"""The record of pruned modules in config.json."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paredown.errors import CheckpointError
from paredown.models.pruned_modules import read_pruned, with_pruned, zeros_share

MODULES = [f"layers.{layer}.{role}" for layer in range(2) for role in "qkvo"]


@given(st.dictionaries(st.sampled_from([*MODULES, "lm_head"]), st.sampled_from(["50", "2of4"])))
def test_a_record_is_read_as_it_was_written(pruned: dict[str, str]) -> None:
    config = with_pruned({"hidden_size": 8, "paredown": {"kept_layers": [0, 2]}}, pruned, MODULES)
    assert read_pruned(config, MODULES) == pruned
    assert config["paredown"]["kept_layers"] == [0, 2]
    assert with_pruned(config, {}, MODULES)["paredown"] == {"kept_layers": [0, 2]}


def test_all_stands_for_the_layers() -> None:
    config = with_pruned({}, dict.fromkeys(MODULES, "2of4"), MODULES)
    assert config == {"paredown": {"pruned": {"2of4": "all"}}}
    assert with_pruned({}, {}, MODULES) == {}


@pytest.mark.parametrize(
    "record", [[], {"50": "some"}, {"50": [1]}, {"50": 3}, {"50": "all", "2of4": [MODULES[0]]}]
)
def test_odd_records_are_refused(record: object) -> None:
    with pytest.raises(CheckpointError, match=r"paredown\.pruned"):
        read_pruned({"paredown": {"pruned": record}}, MODULES)


@pytest.mark.parametrize(
    ("pattern", "share"),
    [("50", 0.5), ("62.5", 0.625), ("2of4", 0.5), ("2of8", 0.75), ("3of2", 0), ("1e9", 0), ("", 0)],
)
def test_the_share_of_a_recorded_pattern(pattern: str, share: float) -> None:
    assert zeros_share(pattern) == share
