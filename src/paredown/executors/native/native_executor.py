"""NativeExecutor: runs a checkpoint on the C++ core. CPU serving uses it, without torch."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from paredown.executors.core_sampler import CoreSampler, own_states
from paredown.executors.native.packed_cache import PackedCache
from paredown.executors.protocol import SequenceSlice
from paredown.executors.sampler import SamplingState
from paredown.kernels.arithmetic import arithmetic
from paredown.kernels.native_model import NativeModel
from paredown.kernels.thread_plan import ThreadPlan
from paredown.spec.context import Context
from paredown.spec.kv import KVDTypes, KVSpec
from paredown.spec.model import ModelSpec
from paredown.spec.weight import ActivationDType

WeightSource = Literal["checkpoint", "cache"]


class NativeExecutor:
    """Implements LoadedExecutor. `weights_from` says whether the weights were packed now or mapped
    from an earlier process's file. `activations` is what inputs are rounded to, if somebody chose
    it. `encoder` reads the prompts of an encoder-decoder."""

    def __init__(
        self,
        model: NativeModel,
        kv: KVSpec,
        *,
        weights_from: WeightSource = "checkpoint",
        cache: PackedCache | None = None,
        activations: ActivationDType | None = None,
        encoder: NativeModel | None = None,
    ) -> None:
        self._model = model
        self._encoder = encoder
        self._kv = kv
        self._cache = cache
        self._activations = activations
        self.weights_from = weights_from
        self._sampler = CoreSampler(model.sampler)
        # The arguments of the last step: starts; lengths, num_logits, pages, num_released.
        self._starts = list[int]()
        self._columns = (list[int](), list[int](), list[Sequence[int]](), list[int]())
        self._across = (list[Sequence[int]](), list[int]())

    @property
    def known_content(self) -> str | None:
        """The digest of the checkpoint's files (models/fingerprints.py), if loading had to compute
        it."""
        return None if self._cache is None else self._cache.content

    def sharing_weights(self, kv: KVSpec, *, keeps_sinks: bool = True) -> "NativeExecutor":
        """Returns another executor on the same packed weights with its own pages. It has the
        attention sinks of this one, if any, unless `keeps_sinks` is false."""
        model = self._model.sharing(kv, keeps_sinks=keeps_sinks)
        return NativeExecutor(
            model,
            kv,
            weights_from=self.weights_from,
            activations=self._activations,
            encoder=self._encoder,
        )

    def wait_for_cache(self) -> None:
        """Waits until the packed weights are on disk, or cannot be written."""
        if self._cache is not None:
            self._cache.wait()

    @property
    def spec(self) -> ModelSpec:
        return self._model.spec

    @property
    def context(self) -> Context:
        return self._model.context

    @property
    def num_pages(self) -> int:
        return self._kv.num_pages

    @property
    def sampler(self) -> CoreSampler:
        return self._sampler

    @property
    def threads(self) -> ThreadPlan:
        return self._model.threads

    @property
    def isa(self) -> str:
        return self._model.isa

    @property
    def arithmetic(self) -> dict[str, str]:
        own = arithmetic(self.isa)
        return own if self._activations is None else own | {"activations": self._activations}

    @property
    def weight_bytes(self) -> int:
        """The bytes of weights that one decode step reads."""
        return self._model.weight_bytes

    @property
    def step_bytes(self) -> int:
        """The bytes of working memory that steps have taken so far, without logits."""
        return self._model.step_bytes

    @property
    def kv(self) -> KVSpec:
        return self._kv

    @property
    def kv_dtype(self) -> KVDTypes:
        """The format of keys and values: one for all layers, or one for each."""
        return self._kv.dtype

    @property
    def kv_token_bytes(self) -> int:
        """The bytes of one token's keys and values over all layers."""
        page_bytes = self._kv.page_bytes(self.spec)
        return page_bytes * self._kv.num_pages // self._kv.num_tokens

    def copy_pages(self, pairs: list[tuple[int, int]]) -> None:
        """See Executor.copy_pages. Raises ValueError for a page that does not exist; nothing is
        copied then."""
        self._model.copy_pages(np.array(pairs, dtype=np.int32).reshape(-1))

    def step(self, slices: list[SequenceSlice]) -> npt.NDArray[np.float32]:
        """See Executor.step. Raises ValueError for a slice beyond the vocabulary, the context or
        its pages; nothing is computed then."""
        tokens, lengths = list[int](), list[int]()
        for part in slices:
            token_ids = part.token_ids
            tokens += token_ids
            lengths.append(len(token_ids))
        pages = [part.pages for part in slices]
        starts = [part.start for part in slices]
        num_logits = [part.num_logits for part in slices]
        released = [part.num_released_pages for part in slices]
        self._starts, self._columns = starts, (lengths, num_logits, pages, released)
        if self._encoder is not None:
            self._write_cross(self._encoder, slices)
            across = [part.cross_pages for part in slices]
            self._across = across, [part.num_cross_tokens for part in slices]
            return self._model.step(tokens, starts, *self._columns, (), self._across)
        if self.spec.rotary_switch is None:
            return self._model.step(tokens, starts, lengths, num_logits, pages, released)
        text_lengths = [part.text_length for part in slices]
        return self._model.step(tokens, starts, lengths, num_logits, pages, released, text_lengths)

    def step_again(self, token_ids: list[int]) -> npt.NDArray[np.float32]:
        """See Executor.step_again. Raises as `step` does."""
        self._starts = [start + 1 for start in self._starts]
        if self._encoder is not None:
            return self._model.step(token_ids, self._starts, *self._columns, (), self._across)
        return self._model.step(token_ids, self._starts, *self._columns)

    def _write_cross(self, encoder: NativeModel, slices: list[SequenceSlice]) -> None:
        """Encodes the texts of slices that bring one, and keeps what cross-attention has of
        them."""
        texts = [(part.encoder_token_ids, part.cross_pages) for part in slices]
        texts = [one for one in texts if one[0]]
        if not texts:
            return
        token_ids = [token_id for text, _ in texts for token_id in text]
        lengths = [len(text) for text, _ in texts]
        vectors_TH = encoder.encode(token_ids, [], lengths, [], "tokens")
        self._model.write_cross(vectors_TH, lengths, [pages for _, pages in texts])

    def write_drafts(
        self, slices: list[SequenceSlice], states: list[SamplingState], num_draft_tokens: list[int]
    ) -> list[list[int]]:
        """See DraftingExecutor.write_drafts, one call into the core. Raises ValueError as `step`
        does, RuntimeError when the model's logits are not finite."""
        starts = [part.start for part in slices]
        lengths = [len(part.token_ids) for part in slices]
        tokens = [token_id for part in slices for token_id in part.token_ids]
        pages = [part.pages for part in slices]
        is_switched = self.spec.rotary_switch is not None
        text_lengths = [part.text_length for part in slices] if is_switched else ()
        return self._model.write_drafts(
            tokens, starts, lengths, pages, own_states(states), num_draft_tokens, text_lengths
        )
