"""The rows of a recipe: its cost, and with inputs in 16 bits no more than that."""

from benchmarks.real.quality import Divergence, rows_of


def test_inputs_in_16_bits_may_cost_no_more_than_rounded_ones() -> None:
    plain, wide = rows_of("int8, books", Divergence(plain=0.0064, wide=0.0027), None)
    assert (plain.asked, plain.meets) == ("", None)
    assert wide.meets
    assert wide.found == "0.0027; rounded inputs alone cost +0.0037"
    worse = rows_of("int8, books", Divergence(plain=0.0064, wide=0.0065), 0.01)
    assert [row.meets for row in worse] == [True, False]
