"""NativeExecutor: a checkpoint on the C++ core. CPU serving goes through here, without torch."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from paredown.engine.executor import SequenceSlice
from paredown.engine.memory.memory_plan import MemoryPlan, default_num_pages, plan_memory
from paredown.engine.native.pack_weights import pack_weights
from paredown.engine.native.packed_cache import CacheConfig, PackedCache
from paredown.engine.sampling.sampler import RowSampler
from paredown.errors import ConfigError
from paredown.kernels._core import ThreadError
from paredown.kernels.isa import chosen_isa
from paredown.kernels.native_model import NativeModel
from paredown.kernels.native_sampler import SamplingState
from paredown.kernels.packed_file import PackedFileError
from paredown.kernels.probe import available_memory_bytes
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.kv_scales import used_kv_scales
from paredown.spec.kv import KVDTypes, KVSpec
from paredown.spec.kv_choice import KVChoice, resolve_kv_choice
from paredown.spec.model import ModelSpec
from paredown.spec.weight import SHORT_BF16_ISAS, ActivationDType

WeightSource = Literal["checkpoint", "cache"]


class NativeExecutor:
    """Implements Executor. Build one with `load_executor`. `weights_from` says whether they were
    packed now or mapped as an earlier process had packed them."""

    def __init__(
        self,
        model: NativeModel,
        kv: KVSpec,
        *,
        weights_from: WeightSource = "checkpoint",
        cache: PackedCache | None = None,
    ) -> None:
        self._model = model
        self._kv = kv
        self._cache = cache
        self.weights_from = weights_from
        self._sampler = RowSampler(model.sampler)
        # Of the last step: starts; lengths, num_logits, pages, num_released.
        self._starts = list[int]()
        self._columns = (list[int](), list[int](), list[Sequence[int]](), list[int]())

    @property
    def known_content(self) -> str | None:
        """The digest of the checkpoint's files (models/fingerprints.py) where loading had to know
        it."""
        return None if self._cache is None else self._cache.content

    def sharing_weights(self, kv: KVSpec, *, keeps_sinks: bool = True) -> "NativeExecutor":
        """Another executor on the same packed weights, with pages of its own, and attention sinks
        where this one has them and they are kept."""
        model = self._model.sharing(kv, keeps_sinks=keeps_sinks)
        return NativeExecutor(model, kv, weights_from=self.weights_from)

    def wait_for_cache(self) -> None:
        """Until the packed weights are on disk, or it is clear that they cannot be."""
        if self._cache is not None:
            self._cache.wait()

    @property
    def spec(self) -> ModelSpec:
        return self._model.spec

    @property
    def num_pages(self) -> int:
        return self._kv.num_pages

    @property
    def sampler(self) -> RowSampler:
        return self._sampler

    @property
    def num_threads(self) -> int:
        """Of prefill."""
        return self._model.threads.prefill

    @property
    def threads(self) -> ThreadPlan:
        return self._model.threads

    @property
    def isa(self) -> str:
        return self._model.isa

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights that one decode step reads."""
        return self._model.weight_bytes

    @property
    def step_bytes(self) -> int:
        """Bytes of working memory that steps have taken so far, logits apart."""
        return self._model.step_bytes

    @property
    def kv(self) -> KVSpec:
        return self._kv

    @property
    def kv_dtype(self) -> KVDTypes:
        """What keys and values are kept in: all layers alike, or each."""
        return self._kv.dtype

    @property
    def kv_token_bytes(self) -> int:
        """Bytes of keys and values of one token over all layers."""
        spec = self.spec
        page_bytes = self._kv.page_bytes(spec.num_layers, spec.num_kv_heads, spec.head_dim)
        return page_bytes * self._kv.num_pages // self._kv.num_tokens

    def copy_pages(self, pairs: list[tuple[int, int]]) -> None:
        """See Executor.copy_pages. Raises ValueError for a page that is not there; nothing is
        copied then."""
        self._model.copy_pages(np.array(pairs, dtype=np.int32).reshape(-1))

    def step(self, slices: list[SequenceSlice]) -> npt.NDArray[np.float32]:
        """See Executor.step. Raises ValueError for a slice that leaves the vocabulary, the context
        or its pages; nothing is computed then."""
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
        return self._model.step(tokens, starts, lengths, num_logits, pages, released)

    def step_again(
        self, slices: list[SequenceSlice], token_ids: list[int]
    ) -> npt.NDArray[np.float32]:
        """See Executor.step_again. Raises as `step` does."""
        self._starts = [start + 1 for start in self._starts]
        return self._model.step(token_ids, self._starts, *self._columns)

    def write_drafts(
        self, slices: list[SequenceSlice], states: list[SamplingState], num_draft_tokens: list[int]
    ) -> list[list[int]]:
        """See DraftingExecutor.write_drafts, one call into the core. Raises ValueError as `step`
        does, RuntimeError when the model's logits are not finite."""
        starts = [part.start for part in slices]
        lengths = [len(part.token_ids) for part in slices]
        tokens = [token_id for part in slices for token_id in part.token_ids]
        pages = [part.pages for part in slices]
        return self._model.write_drafts(tokens, starts, lengths, pages, states, num_draft_tokens)


def load_executor(
    checkpoint: Checkpoint,
    *,
    num_pages: int | None = None,
    num_threads: int | None = None,
    decode_threads: int | None = None,
    kv_dtype: KVChoice | None = None,
    activations: ActivationDType | None = None,
    cache: CacheConfig | None = None,
) -> NativeExecutor:
    """Packs a checkpoint's weights for the native core, or maps them as `cache` keeps them packed
    (None: keep and use nothing).

    `num_pages` None takes a default from the free memory, `num_threads` None all cores,
    `decode_threads` (of steps of few tokens) None as many, `kv_dtype` None what the checkpoint asks
    for; `activations` None reads the input of each linear layer as its format says. Raises
    CapacityError, with the arithmetic, before loading when it does not fit, UnsupportedError for
    shapes the core does not take, and ConfigError for a senseless number of threads or pages,
    activations that a weight cannot be multiplied with, or a format of keys and values that is
    unknown or whose scales the checkpoint does not have.
    """
    loading = start_loading(
        checkpoint,
        num_pages=num_pages,
        num_threads=num_threads,
        decode_threads=decode_threads,
        kv_dtype=kv_dtype,
        activations=activations,
        cache=cache,
    )
    return loading.finish()


def start_loading(
    checkpoint: Checkpoint,
    *,
    num_pages: int | None = None,
    num_threads: int | None = None,
    decode_threads: int | None = None,
    kv_dtype: KVChoice | None = None,
    activations: ActivationDType | None = None,
    cache: CacheConfig | None = None,
) -> "Loading":
    """As `load_executor`, for a caller with other work before `finish`: mapped weights are verified
    meanwhile."""
    spec = checkpoint.spec
    threads = ThreadPlan.resolve(num_threads, decode_threads)
    available = available_memory_bytes()
    kv_dtypes = resolve_kv_choice(
        checkpoint.kv_dtype if kv_dtype is None else kv_dtype, spec.num_layers
    )
    pages = default_num_pages(spec, available, kv_dtypes) if num_pages is None else num_pages
    if not isinstance(pages, int) or isinstance(pages, bool) or pages < 1:
        raise ConfigError("there must be KV pages", seen=pages, remedy="Use 1 or more.")
    kv = KVSpec(num_pages=pages, dtype=kv_dtypes)
    plan = plan_memory(checkpoint, kv, threads.most)
    packed_cache = None
    if cache is not None and plan.weight_bytes >= cache.min_bytes:
        options: dict[str, str] = {} if activations is None else {"activations": activations}
        if chosen_isa() in SHORT_BF16_ISAS:
            options["bf16"] = "short"
        packed_cache = PackedCache(checkpoint, cache, num_threads=threads.most, options=options)
    return Loading(checkpoint, kv, plan, threads, activations, packed_cache)


class Loading:
    """A checkpoint on its way into a model."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        kv: KVSpec,
        plan: MemoryPlan,
        threads: ThreadPlan,
        activations: ActivationDType | None,
        cache: PackedCache | None,
    ) -> None:
        self._checkpoint = checkpoint
        self._kv = kv
        self._plan = plan
        self._activations = activations
        self._cache = cache
        self._file = None if cache is None else cache.find()
        mapped_plan = plan.without_packing()
        (plan if self._file is None else mapped_plan).check(available_memory_bytes())
        scales = used_kv_scales(checkpoint, kv)
        self._model = NativeModel(checkpoint.spec, kv, threads, scales)

    def finish(self) -> NativeExecutor:
        """Waits for the verification, or packs the weights. To be called once."""
        source: WeightSource = "cache" if self._is_mapped() else "checkpoint"
        if source == "checkpoint":
            pack_weights(self._checkpoint, self._model, self._activations)
            if self._cache is not None:
                self._cache.store(self._model)
        return NativeExecutor(self._model, self._kv, weights_from=source, cache=self._cache)

    def _is_mapped(self) -> bool:
        if self._file is None:
            return False
        assert self._cache is not None
        try:
            self._file.verify()
        except PackedFileError as error:
            self._cache.reject(self._file.path, error)
        except (MemoryError, ThreadError) as error:
            self._cache.pass_over(self._file.path, error)
        else:
            self._model.borrow(self._file.blobs())
            return True
        self._file = None
        self._plan.check(available_memory_bytes())
        return False
