"""A deterministic toy model for tests of the engine and the server.

A position's state is a hash of its token and the previous position's state, which is read from the
page storage. The logits follow from the state or, with a window (of two tokens or more), from all
visible states. A wrong page, a wrong order, or a position computed twice or never changes every
later token.
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fakes.specs import context_of, flat_spec
from paredown.executors.core_sampler import CoreSampler
from paredown.executors.protocol import SequenceSlice, moved_on
from paredown.executors.sampler import NOT_FINITE, SamplingState
from paredown.models.chat.rendered_chat import RenderedChat
from paredown.models.chat.turn_format import TurnFormat
from paredown.spec.context import Context
from paredown.spec.kv import PAGE_SIZE
from paredown.spec.model import ModelSpec
from paredown.spec.rotary import Rotary

MASK = (1 << 64) - 1
EOS = 0


def toy_spec(*, vocab_size: int = 512, max_positions: int = 256) -> ModelSpec:
    return flat_spec(
        family="toy",
        vocab_size=vocab_size,
        hidden_size=8,
        num_layers=1,
        num_heads=1,
        num_kv_heads=1,
        head_dim=8,
        intermediate_size=8,
        max_positions=max_positions,
        positions=Rotary(theta=10000.0),
        norm="rms",
        norm_eps=1e-5,
        activation="silu",
        gated=True,
    )


def mix(state: int, token_id: int) -> int:
    """One round of splitmix64 over the state and the token."""
    z = (state + 0x9E3779B97F4A7C15 * (token_id + 1)) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def logits_of(state: int, vocab_size: int) -> npt.NDArray[np.float32]:
    """Returns logits in which a few tokens, chosen by the state, are likely; eos is rare."""
    row = np.full(vocab_size, -4.0, np.float32)
    for i in range(8):
        row[1 + mix(state, i) % (vocab_size - 1)] = 4.0 - 0.5 * i
    if state % 97 == 0:
        row[EOS] = 9.0
    return row


def seen_positions(context: Context, position: int) -> list[int]:
    """Returns the positions that a token sees besides itself: the sinks and the window before
    it."""
    first = max(context.num_sink_tokens, position - (context.kept_window or 1) + 1)
    return [*range(min(context.num_sink_tokens, position)), *range(first, position)]


def reference_logits(
    token_ids: list[int], vocab_size: int, spec: ModelSpec | Context | None = None
) -> npt.NDArray[np.float32]:
    states, state = [], 1
    for token_id in token_ids:
        state = mix(state, token_id)
        states.append(state)
    context = None if spec is None else context_of(spec)
    if context is not None and context.kept_window is not None:
        for position in seen_positions(context, len(token_ids) - 1):
            state = mix(state, states[position])
    return logits_of(state, vocab_size)


class ToyExecutor:
    """Sleeps for `delay_s` in each step; a step whose number is in `failing_steps` raises."""

    def __init__(
        self,
        *,
        num_pages: int = 64,
        spec: ModelSpec | Context | None = None,
        delay_s: float = 0.0,
        failing_steps: frozenset[int] = frozenset(),
    ) -> None:
        self.context = context_of(toy_spec() if spec is None else spec)
        self.spec = self.context.spec
        self.num_pages = num_pages
        self.num_steps = 0
        self.delay_s = delay_s
        self.failing_steps = failing_steps
        self.sampler = CoreSampler.with_threads(1)
        self._slices = list[SequenceSlice]()
        self._states = np.zeros((num_pages, PAGE_SIZE), np.uint64)

    def copy_pages(self, pairs: list[tuple[int, int]]) -> None:
        for source, target in pairs:
            self._states[target] = self._states[source]

    def step(self, slices: list[SequenceSlice]) -> npt.NDArray[np.float32]:
        self.num_steps += 1
        self._slices = slices
        if self.delay_s:
            time.sleep(self.delay_s)
        if self.num_steps in self.failing_steps:
            raise RuntimeError("injected failure")
        rows = [row for one in slices for row in self._run(one)]
        return np.array(rows, np.float32).reshape(len(rows), self.spec.vocab_size)

    def step_again(self, token_ids: list[int]) -> npt.NDArray[np.float32]:
        assert all(len(one.token_ids) == one.num_logits == 1 for one in self._slices)
        return self.step(moved_on(self._slices, token_ids))

    def write_drafts(
        self, slices: list[SequenceSlice], states: list[SamplingState], num_draft_tokens: list[int]
    ) -> list[list[int]]:
        """Drafts with one step for each token of each draft."""
        drafts = []
        for one, state, count in zip(slices, states, num_draft_tokens, strict=True):
            num_computed, draft = one.start + len(one.token_ids), list[int]()
            logits = self.step([replace(one, num_logits=int(count > 0))])
            while len(draft) < count:
                (token_id,), _, (failure,) = self.sampler.sample(logits, [state])
                assert failure != NOT_FINITE
                if failure is not None:
                    break
                draft.append(token_id)
                if len(draft) < count:
                    logits = self.step([SequenceSlice(draft[-1:], num_computed, one.pages, 1)])
                    num_computed += 1
            for _ in draft:
                state.pop()
            drafts.append(draft)
        return drafts

    def _run(self, one: SequenceSlice) -> list[npt.NDArray[np.float32]]:
        end = one.start + len(one.token_ids)
        assert one.token_ids
        assert (len(one.pages) + one.num_released_pages) * PAGE_SIZE >= end
        state, rows = self._read(one, one.start - 1) if one.start else 1, []
        for position, token_id in enumerate(one.token_ids, one.start):
            state = mix(state, token_id)
            self._states[self._page(one, position), position % PAGE_SIZE] = state
            if position >= end - one.num_logits:
                rows.append(logits_of(self._see(one, position, state), self.spec.vocab_size))
        return rows

    def _see(self, one: SequenceSlice, position: int, state: int) -> int:
        if self.context.kept_window is not None:
            for other in seen_positions(self.context, position):
                state = mix(state, self._read(one, other))
        return state

    def _read(self, one: SequenceSlice, position: int) -> int:
        return int(self._states[self._page(one, position), position % PAGE_SIZE])

    def _page(self, one: SequenceSlice, position: int) -> int:
        is_sink = position < self.context.num_sink_tokens
        return one.pages[position // PAGE_SIZE - (0 if is_sink else one.num_released_pages)]


class ToyTokenizer:
    """Tokens 1..256 are bytes; the others decode to parts of UTF-8 characters."""

    bos_token_id: int | None = None
    prompt_prefix: tuple[int, ...] = ()
    prompt_suffix: tuple[int, ...] = ()
    max_token_bytes: int | None = None
    fill_in_middle = None
    eos_token_ids = frozenset({EOS})
    has_chat_template = True
    reads_last_turn = False
    turn_format = TurnFormat()
    template_value_names = frozenset[str]()
    control_ids: Mapping[str, int] = {}
    PIECES = (b" the", b" of", b"\xc3", b"\xa9", b"\xe2\x82", b"\xac", b"\xf0\x9f", b"\x8e\x89")

    def __init__(self, vocab_size: int = 512) -> None:
        self.vocab_size = vocab_size

    @classmethod
    def open(cls, path: Path) -> "ToyTokenizer":
        return cls()

    def encode(self, text: str) -> list[int]:
        return [byte + 1 for byte in text.encode()]

    def token_string(self, token_id: int) -> str | None:
        return f"<{token_id}>" if token_id < self.vocab_size else None

    def decode(self, token_ids: list[int], skip_special_tokens: bool = True) -> str:
        return b"".join(map(self._bytes, token_ids)).decode("utf-8", errors="replace")

    def render_chat(
        self,
        messages: list[dict[str, object]],
        tools: list[dict[str, object]] | None = None,
        *,
        template_values: Mapping[str, object] | None = None,
    ) -> str:
        return "".join(f"<{one['role']}>{one['content']}\n" for one in messages) + "<assistant>"

    def render_marked(
        self,
        messages: list[dict[str, object]],
        tools: list[dict[str, object]] | None = None,
        *,
        template_values: Mapping[str, object] | None = None,
    ) -> RenderedChat:
        text = self.render_chat(messages, tools, template_values=template_values)
        return RenderedChat(text=text)

    def encode_rendered(self, chat: RenderedChat) -> list[int]:
        return self.encode(chat.text)

    def _bytes(self, token_id: int) -> bytes:
        if token_id == EOS:
            return b""
        if token_id <= 256:
            return bytes([token_id - 1])
        return self.PIECES[token_id % len(self.PIECES)]
