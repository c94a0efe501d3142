"""Places: tracks the process's connections and decides which one gives way when there are too many.

A connection either waits for its client (for a head, a body, or for an answer to be taken) or is
being served. A waiting one may be closed for a newcomer, so nobody holds places by silence.
"""

import ipaddress
from collections import OrderedDict
from dataclasses import dataclass
from typing import Protocol

from paredown.errors import ConfigError

# Extra connections that may only GET /health. There are as many as asyncio accepts in three turns,
# because a newcomer's head is read before more arrive.
HEALTH_PLACES = 384
# An IPv6 client controls a whole network of addresses.
_IPV6_PREFIX = 64


class Holder(Protocol):
    """A connection, as the owner of a place."""

    def give_way(self) -> None:
        """Ends the connection; its place is already taken."""
        ...


@dataclass(eq=False, slots=True)
class _Group:
    """The connections of one address: their number, and the waiting ones, longest first."""

    num_taken: int
    waiting: OrderedDict[Holder, None]


class Places:
    """Allows `num_places` connections, and `num_for_address` per address, beyond which that
    address's own waiting connection gives way. When all places are taken, a connection of the
    address with the most waiting ones gives way. If none waits, the newcomer may only use /health.
    """

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
        """Returns whether the holder got a place; otherwise it may only use /health. A newcomer
        counts as waiting."""
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
        # The group may have disappeared with its last connection.
        group = self._groups.setdefault(name, _Group(0, OrderedDict()))
        group.num_taken += 1
        group.waiting[holder] = None
        self._holders[holder] = name
        return True

    def give_back(self, holder: Holder) -> None:
        """Frees the place, even if the holder has already given way."""
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
        """Records that the holder now waits for its client, or is being served."""
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
    """Returns the address; for IPv6 its network, and for IPv4 in IPv6 the inner address."""
    if ":" not in address:
        return address
    try:
        found = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((found, _IPV6_PREFIX), strict=False))
