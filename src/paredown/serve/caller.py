"""Caller: who sent a request, as far as the server can tell."""

from dataclasses import dataclass

from starlette.requests import Request

from paredown.serve.doors.places import address_group
from paredown.serve.watch.request_record import RequestRecord


@dataclass(frozen=True, kw_only=True)
class Caller:
    """`key_name` names the key that the request came with; it is empty where the server asks for
    none. `address` is the client's, or its network (IPv6)."""

    key_name: str = ""
    address: str = ""

    @classmethod
    def of(cls, request: Request) -> "Caller":
        """Returns the caller of a request that has come through the doors."""
        address = address_group(request.client.host if request.client else "")
        return cls(key_name=RequestRecord.of(request.scope).key_name, address=address)

    @property
    def tenant(self) -> str:
        """The party that the request counts for where it names no `user`."""
        return self.key_name or self.address

    @property
    def scope(self) -> str:
        """Tells callers apart, for what only the same one may find again: cached prefixes, stored
        answers. A key has one wherever it is used from; without keys an address has one."""
        return f"key {self.key_name}" if self.key_name else f"address {self.address}"
