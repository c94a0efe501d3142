"""ResponseStore: the responses that later ones may go on from, in memory and bounded."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from sys import getsizeof

from paredown.serve.errors import MAX_NAME_CHARS, HttpError
from paredown.serve.schema.message import Message
from paredown.serve.schema.response_items import KnownItem
from paredown.shown import quoted

MAX_RESPONSES = 1024
MAX_BYTES = 64_000_000
# What an object takes beside its text.
_MESSAGE_BYTES = 1000
_ITEM_BYTES = 200


@dataclass(frozen=True, kw_only=True)
class StoredResponse:
    """`owner` is who may read it, `text` the response as JSON, `items` the ids and the JSON of the
    input's items, `outputs` what the model said by its ids, and `messages` the conversation up to
    its end without instructions."""

    id: str
    owner: str
    text: str
    items: Sequence[tuple[str, str]]
    messages: Sequence[Message]
    outputs: Mapping[str, KnownItem] = field(default_factory=dict)

    @property
    def num_bytes(self) -> int:
        """Returns about how much memory it takes. Messages that it shares with the response before
        it count again."""
        size = getsizeof(self.text) + sum(_ITEM_BYTES + getsizeof(text) for _, text in self.items)
        size += _MESSAGE_BYTES * len(self.outputs)
        return size + sum(_MESSAGE_BYTES + one.num_bytes for one in self.messages)


class ResponseStore:
    """Drops those that were read longest ago where there are more than MAX_RESPONSES, or more than
    MAX_BYTES together. Belongs to one event loop."""

    def __init__(self, max_responses: int = MAX_RESPONSES, max_bytes: int = MAX_BYTES) -> None:
        self.max_responses, self.max_bytes = max_responses, max_bytes
        self.num_bytes = 0
        self._stored: OrderedDict[str, tuple[StoredResponse, int]] = OrderedDict()
        # The responses of items that the model said, all by their ids.
        self._places: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._stored)

    def put(self, response: StoredResponse) -> None:
        """Stores a response; one that is larger than everything together may be is left out."""
        num_bytes = response.num_bytes
        if num_bytes > self.max_bytes:
            return
        self._stored[response.id] = (response, num_bytes)
        self._places |= dict.fromkeys(response.outputs, response.id)
        self.num_bytes += num_bytes
        while len(self._stored) > self.max_responses or self.num_bytes > self.max_bytes:
            self._drop(next(iter(self._stored)))

    def get(self, response_id: str, owner: str) -> StoredResponse:
        """Returns the response. Raises HttpError 404 where there is none, or it is another's."""
        found = self._stored.get(response_id)
        if found is None or found[0].owner != owner:
            raise HttpError(
                404,
                f"Response with id {quoted(response_id, MAX_NAME_CHARS)} not found: it was never "
                "stored, or others took its place",
                param="previous_response_id",
                code="response_not_found",
            )
        self._stored.move_to_end(response_id)
        return found[0]

    def delete(self, response_id: str, owner: str) -> None:
        """Deletes the response. Raises what `get` raises."""
        self.get(response_id, owner)
        self._drop(response_id)

    def find_item(self, item_id: str, owner: str) -> KnownItem:
        """Returns an item that the model said in a stored response. Raises HttpError 404."""
        found = self._stored.get(self._places.get(item_id, ""))
        if found is None or found[0].owner != owner:
            raise HttpError(
                404,
                f"there is no item {quoted(item_id, MAX_NAME_CHARS)} here: its response was never "
                "stored, or others took its place",
                param="input",
                code="item_not_found",
            )
        self._stored.move_to_end(found[0].id)
        return found[0].outputs[item_id]

    def _drop(self, response_id: str) -> None:
        response, num_bytes = self._stored.pop(response_id)
        self.num_bytes -= num_bytes
        for item_id in response.outputs:
            del self._places[item_id]
