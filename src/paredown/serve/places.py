"""Places: which connections the process has, and who gives way when there are too many.

A connection either waits for its client (for a head, a body, or that an answer is taken) or is
worked for. Who waits for its client may be ended for a newcomer. So nobody holds places by silence.
"""

import ipaddress
from collections import OrderedDict
from dataclasses import dataclass
from typing import Protocol

from paredown.errors import ConfigError

# Connections beyond all places, for which GET /health alone is answered. They are as many as
# asyncio accepts in three turns: the head of a newcomer is read before the others are there.
HEALTH_PLACES = 384
# A client of IPv6 has a network of its own, and as many addresses as it likes.
_IPV6_PREFIX = 64


class Holder(Protocol):
    """A connection, as far as its place is concerned."""

    def give_way(self) -> None:
        """Ends it; its place is another's already."""
        ...


@dataclass(eq=False, slots=True)
class _Group:
    """The connections of one address: all, and those that wait for it, longest first."""

    num_taken: int
    waiting: OrderedDict[Holder, None]


class Places:
    """At most `num_places` connections, and `num_for_address` for one address, whose own waiting
    connection gives way to one too many. When all places are taken, it is one of the address with
    the most that wait. Where nobody waits the newcomer is asked for its health alone."""

    def __init__(self, num_places: int, num_for_address: int) -> None:
        if num_for_address < 1:
            raise ConfigError(
                "no address may have a connection",
                seen=f"--address-connections {num_for_address}",
                remedy="Use 1 or more.",
            )
        self.num_places = num_places
        self.num_for_address = num_for_address
        self._holders: dict[Holder, str] = {}
        self._groups: dict[str, _Group] = {}
        self._health: OrderedDict[Holder, None] = OrderedDict()

    @property
    def num_taken(self) -> int:
        return len(self._holders)

    def take(self, holder: Holder, address: str) -> bool:
        """Whether it has a place of its own; else one for /health. The newcomer waits."""
        name = address_group(address)
        group = self._groups.get(name)
        if group is not None and group.num_taken >= self.num_for_address:
            has_room = self._make_room(group)
        else:
            has_room = self.num_taken < self.num_places or self._make_room(self._most_waiting())
        if not has_room:
            if len(self._health) >= HEALTH_PLACES:
                self._health.popitem(last=False)[0].give_way()
            self._health[holder] = None
            return False
        # The group may have gone with its last connection.
        group = self._groups.setdefault(name, _Group(0, OrderedDict()))
        group.num_taken += 1
        group.waiting[holder] = None
        self._holders[holder] = name
        return True

    def give_back(self, holder: Holder) -> None:
        """Also where it has given way already."""
        self._health.pop(holder, None)
        name = self._holders.pop(holder, None)
        if name is None:
            return
        group = self._groups[name]
        group.waiting.pop(holder, None)
        group.num_taken -= 1
        if not group.num_taken:
            del self._groups[name]

    def note(self, holder: Holder, *, is_waiting: bool) -> None:
        """It waits for its client from now on, or is worked for."""
        name = self._holders.get(holder)
        if name is None:
            return
        waiting = self._groups[name].waiting
        if is_waiting:
            waiting.setdefault(holder)
        else:
            waiting.pop(holder, None)

    def _most_waiting(self) -> _Group | None:
        return max(self._groups.values(), key=lambda group: len(group.waiting), default=None)

    def _make_room(self, group: _Group | None) -> bool:
        if group is None or not group.waiting:
            return False
        holder = next(iter(group.waiting))
        self.give_back(holder)
        holder.give_way()
        return True


def address_group(address: str) -> str:
    """The address; of IPv6 the network, and of IPv4 in IPv6 the address in it."""
    if ":" not in address:
        return address
    try:
        found = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((found, _IPV6_PREFIX), strict=False))
