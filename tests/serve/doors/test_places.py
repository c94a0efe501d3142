"""Places: never more than there are, and silence holds none of them."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paredown.errors import ConfigError
from paredown.serve.doors.places import HEALTH_PLACES, Places, address_group


@dataclass(eq=False)
class Seat:
    """A connection that notes whether it had to go."""

    has_gone: bool = field(default=False)

    def give_way(self) -> None:
        assert not self.has_gone
        self.has_gone = True


def taken(places: Places, address: str, *, works: bool = False) -> Seat:
    seat = Seat()
    assert places.take(seat, address)
    if works:
        places.note(seat, is_waiting=False)
    return seat


def test_who_has_waited_longest_at_the_address_with_most_gives_way():
    places = Places(4, 4)
    alone = taken(places, "1.1.1.1")
    first, second, third = (taken(places, "2.2.2.2") for _ in range(3))
    taken(places, "3.3.3.3")
    assert [one.has_gone for one in (alone, first, second, third)] == [False, True, False, False]
    assert places.num_taken == 4


def test_one_too_many_of_an_address_ends_one_of_its_own():
    places = Places(10, 2)
    other = taken(places, "1.1.1.1")
    first, second = taken(places, "2.2.2.2"), taken(places, "2.2.2.2")
    taken(places, "2.2.2.2")
    assert (other.has_gone, first.has_gone, second.has_gone) == (False, True, False)


def test_who_is_worked_for_stays_and_the_newcomer_may_ask_for_health():
    places = Places(2, 2)
    seats = [taken(places, "1.1.1.1", works=True) for _ in range(2)]
    late = [Seat() for _ in range(HEALTH_PLACES + 1)]
    assert not any(places.take(one, "1.1.1.1") for one in late)
    assert not any(one.has_gone for one in seats)
    # The longest of them makes room for the last.
    assert [one.has_gone for one in late] == [True] + [False] * HEALTH_PLACES
    places.note(seats[1], is_waiting=True)
    assert places.take(Seat(), "1.1.1.1")
    assert [one.has_gone for one in seats] == [False, True]


def test_the_time_of_waiting_begins_when_waiting_begins():
    places = Places(2, 2)
    first, second = taken(places, "1.1.1.1"), taken(places, "1.1.1.1")
    places.note(first, is_waiting=False)
    places.note(first, is_waiting=True)
    places.note(second, is_waiting=True)
    taken(places, "1.1.1.1")
    assert (first.has_gone, second.has_gone) == (False, True)


STEPS = st.lists(
    st.tuples(st.sampled_from(["take", "give", "wait", "work"]), st.integers(0, 30)), max_size=80
)


@given(STEPS, st.integers(1, 6), st.integers(1, 6))
def test_counts_hold_whatever_comes(steps, num_places, num_for_address):
    places = Places(num_places, num_for_address)
    seats: dict[Seat, str] = {}
    for what, number in steps:
        if what == "take":
            seat, address = Seat(), f"10.0.0.{number % 3}"
            if places.take(seat, address):
                seats[seat] = address
        elif seats:
            seat = list(seats)[number % len(seats)]
            if what == "give":
                places.give_back(seat)
                del seats[seat]
            else:
                places.note(seat, is_waiting=what == "wait")
        seats = {one: address for one, address in seats.items() if not one.has_gone}
        assert places.num_taken == len(seats) <= num_places
        counts = [list(seats.values()).count(f"10.0.0.{i}") for i in range(3)]
        assert max(counts) <= num_for_address


@pytest.mark.parametrize(
    ("address", "group"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::ffff:10.0.0.9", "10.0.0.9"),
        ("2001:db8:1:2:aaaa::9", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:bbbb::1", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("no:address", "no:address"),
    ],
)
def test_a_network_of_ipv6_is_one_address(address, group):
    assert address_group(address) == group


def test_no_connections_at_all_are_refused():
    with pytest.raises(ConfigError, match="--address-connections 0"):
        Places(8, 0)
