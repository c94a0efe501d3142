import json
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from paredown.serve.intake.value_counts import ValueCounts, ValueLimits

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.sampled_from('a",:[]{}\\\n\x00é😀')),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=12,
)


def counted(value: object) -> tuple[int, int, int]:
    """Strings, lists and objects, commas: one value after the other."""
    if isinstance(value, str):
        return 1, 0, 0
    if not isinstance(value, list | dict):
        return 0, 0, 0
    inner = [*value, *value.values()] if isinstance(value, dict) else value
    parts = [counted(one) for one in inner]
    sums = [sum(one[i] for one in parts) for i in range(3)]
    return sums[0], sums[1] + 1, sums[2] + max(0, len(value) - 1)


@given(VALUES, st.booleans(), st.lists(st.integers(0, 400), max_size=6))
def test_counts_are_those_of_the_value_however_it_is_cut(value, is_ascii, cuts):
    data = json.dumps(value, ensure_ascii=is_ascii).encode()
    counts = ValueCounts()
    borders = [0, *sorted(cuts), len(data)]
    for start, end in pairwise(borders):
        counts.add(data[start:end])
    found = counts.num_strings, counts.num_containers, counts.num_values
    assert found == counted(value)


@given(st.binary(max_size=200))
def test_what_is_no_json_is_counted_somehow(data):
    counts = ValueCounts()
    counts.add(data)
    assert min(counts.num_strings, counts.num_containers, counts.num_values) >= 0


def test_the_excess_is_named():
    counts = ValueCounts()
    counts.add(b'{"a":[1,2],"b":3}')
    enough = {"num_strings": 2, "num_containers": 2, "num_values": 2}
    assert counts.excess(ValueLimits(**enough)) is None
    for name, told in (
        ("num_strings", "1 strings"),
        ("num_containers", "1 lists and objects"),
        ("num_values", "1 values"),
    ):
        assert counts.excess(ValueLimits(**{**enough, name: 1})) == f"more than {told}"
