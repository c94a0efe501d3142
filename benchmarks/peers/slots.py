"""The loop of llama.cpp's server: slots that requests take turns in, one batch for all of them."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from benchmarks.peers.offline import Job

# The server's own default (-b); llama.cpp cuts it into pieces of 512 (-ub).
BATCH_TOKENS = 2048
# (token, position, slot, whether a token is drawn after it).
Entry = tuple[int, int, int, bool]


class Sequences(Protocol):
    """What computes a batch, with a sequence for each slot."""

    def run(self, entries: Sequence[Entry]) -> None: ...

    def forget(self, sequence: int) -> None: ...


@dataclass(slots=True)
class Slot:
    """A request under way; its next token stands at `num_computed`."""

    prompt: list[int]
    num_left: int
    num_computed: int = 0

    @property
    def generates(self) -> bool:
        return self.num_computed >= len(self.prompt)


def serve(context: Sequences, jobs: Sequence[Job], num_slots: int) -> int:
    """Answers all of them; returns how many tokens were computed."""
    waiting, slots, num_tokens = deque(jobs), dict[int, Slot](), 0
    while waiting or slots:
        for number in range(num_slots):
            if waiting and number not in slots:
                prompt, num_left = waiting.popleft()
                slots[number] = Slot(prompt, num_left)
        entries = next_batch(slots)
        context.run(entries)
        num_tokens += len(entries)
        for _, position, number, has_logits in entries:
            slot = slots[number]
            slot.num_computed = position + 1
            if has_logits:
                slot.num_left -= 1
                if not slot.num_left:
                    context.forget(number)
                    del slots[number]
    return num_tokens


def next_batch(slots: dict[int, Slot]) -> list[Entry]:
    """Those that generate first, with any token; then prompts, as far as there is room."""
    entries = [
        (slot.prompt[slot.num_computed % len(slot.prompt)], slot.num_computed, number, True)
        for number, slot in slots.items()
        if slot.generates
    ]
    for number, slot in slots.items():
        if slot.generates:
            continue
        start, last = slot.num_computed, len(slot.prompt) - 1
        end = min(last + 1, start + BATCH_TOKENS - len(entries))
        entries += [(slot.prompt[i], i, number, i == last) for i in range(start, end)]
    return entries
