"""TorchExecutor: runs a checkpoint on the PyTorch decoder, on a CPU or a GPU.

Everything is computed in float32, in any stored format; keys and values are read from pages. A
row's bits do not depend on what else a step computes (tiles.py, docs/internals/exactness.md).
"""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch

from paredown.executors.core_sampler import CoreSampler
from paredown.executors.protocol import SequenceSlice, moved_on
from paredown.executors.sampler import SamplingState
from paredown.executors.torch.drafts import check_drafts, write_drafts
from paredown.executors.torch.encoder_texts import EncoderTexts
from paredown.executors.torch.paged_decoder import PagedDecoder
from paredown.executors.torch.pages import Pages
from paredown.executors.torch.process import on_threads, torch_arithmetic
from paredown.executors.torch.slice_rules import check_slices
from paredown.executors.torch.tile_graphs import TileGraphs
from paredown.executors.torch.tiles import Tiles
from paredown.kernels.thread_plan import MAX_DECODE_TOKENS, ThreadPlan
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.device import exact_products
from paredown.spec.context import Context
from paredown.spec.device import Device
from paredown.spec.kept_pages import KeptPages
from paredown.spec.kv import KVSpec
from paredown.spec.model import ModelSpec

_FLOAT_BYTES = 4


class TorchExecutor:
    """Implements LoadedExecutor. During a step PyTorch has as many threads as `threads` says;
    afterwards the earlier number is restored. `encoder` reads the prompts of an
    encoder-decoder."""

    def __init__(
        self,
        decoder: Decoder,
        context: Context,
        kv: KVSpec,
        threads: ThreadPlan,
        device: Device = "cpu",
        encoder: Decoder | None = None,
    ) -> None:
        self._decoder = decoder
        self._encoder = encoder
        self._context = context
        self._kv = kv
        self._threads = threads
        self._device: Device = device
        self._pages = Pages(context.spec, kv, device)
        graphs = TileGraphs() if device == "cuda" else None
        self._paged = PagedDecoder(decoder, context, self._pages, graphs)
        self._texts = None
        if encoder is not None:
            self._texts = EncoderTexts(encoder, decoder, self._pages, device)
        self._sampler = CoreSampler.with_threads(threads.most)
        self._num_sink_pages = KeptPages.of(context).num_sink_pages
        self._last = list[SequenceSlice]()

    @property
    def spec(self) -> ModelSpec:
        return self._context.spec

    @property
    def context(self) -> Context:
        return self._context

    @property
    def num_pages(self) -> int:
        return self._kv.num_pages

    @property
    def kv(self) -> KVSpec:
        return self._kv

    @property
    def sampler(self) -> CoreSampler:
        return self._sampler

    @property
    def threads(self) -> ThreadPlan:
        return self._threads

    @property
    def arithmetic(self) -> dict[str, str]:
        """PyTorch's build and the device that it runs on (process.py)."""
        return torch_arithmetic(self._device, self._threads)

    @property
    def weight_bytes(self) -> int:
        """See LoadedExecutor.weight_bytes; weights are floats in any stored format."""
        spec = replace(self.spec, encoder=None)
        num_weights = spec.num_active_linear_parameters() + spec.num_router_parameters()
        return _FLOAT_BYTES * (num_weights + spec.vocab_size * spec.hidden_size)

    @property
    def kv_token_bytes(self) -> int:
        """See LoadedExecutor.kv_token_bytes."""
        return self._kv.page_bytes(self.spec) * self._kv.num_pages // self._kv.num_tokens

    @property
    def known_content(self) -> str | None:
        """Always None, since loading computes no digest."""
        return None

    def sharing_weights(self, kv: KVSpec, *, keeps_sinks: bool = True) -> "TorchExecutor":
        """See LoadedExecutor.sharing_weights."""
        context = self._context if keeps_sinks else replace(self._context, sinks=None)
        return TorchExecutor(self._decoder, context, kv, self._threads, self._device, self._encoder)

    def wait_for_cache(self) -> None:
        """Returns at once, since nothing is kept."""

    def copy_pages(self, pairs: list[tuple[int, int]]) -> None:
        """See Executor.copy_pages. Raises ValueError for a page that does not exist; nothing is
        copied then."""
        self._pages.copy(pairs)

    def step(self, slices: list[SequenceSlice]) -> npt.NDArray[np.float32]:
        """See Executor.step. Raises ValueError for a slice beyond the vocabulary, the context or
        its pages; nothing is computed then."""
        check_slices(slices, self._context, self.num_pages)
        # The caller may change its slices before the step is repeated, except for the lists of
        # pages.
        self._last = [replace(part) for part in slices]
        if not slices:
            return np.empty((0, self.spec.vocab_size), np.float32)
        num_tokens = sum(len(part.token_ids) for part in slices)
        is_decode = num_tokens <= MAX_DECODE_TOKENS
        num_threads = self._threads.decode if is_decode else self._threads.prefill
        self._write_texts(slices)
        with torch.inference_mode(), exact_products(), on_threads(num_threads):
            tiles = Tiles.of(slices, self._num_sink_pages, self._device)
            logits_LV: npt.NDArray[np.float32] = self._paged.logits(tiles).cpu().numpy()
        return logits_LV

    def _write_texts(self, slices: list[SequenceSlice]) -> None:
        """Encodes the texts of slices that bring one."""
        if self._texts is None:
            return
        with torch.inference_mode(), exact_products(), on_threads(self._threads.prefill):
            for part in slices:
                self._texts.write(part)

    def step_again(self, token_ids: list[int]) -> npt.NDArray[np.float32]:
        """See Executor.step_again. Raises as `step` does."""
        return self.step(moved_on(self._last, token_ids))

    def write_drafts(
        self,
        slices: list[SequenceSlice],
        states: list[SamplingState],
        num_draft_tokens: list[int],
    ) -> list[list[int]]:
        """See DraftingExecutor.write_drafts. Raises ValueError as `step` does, RuntimeError when
        the model's logits are not finite."""
        check_drafts(slices, states, num_draft_tokens, self._context.max_request_tokens)
        return write_drafts(self.step, self._sampler, slices, states, num_draft_tokens)
