"""Loads a checkpoint into a native executor: its weights are packed now, or mapped from the
cache."""

from paredown.errors import ConfigError
from paredown.executors.memory_plan import MemoryPlan
from paredown.executors.native.encoder_kv import encoder_kv, encoder_options
from paredown.executors.native.memory_plan import plan_encoder_memory, plan_memory
from paredown.executors.native.native_encoder import NativeEncoder
from paredown.executors.native.native_executor import NativeExecutor, WeightSource
from paredown.executors.native.pack_weights import pack_weights
from paredown.executors.native.packed_cache import PackedCache
from paredown.executors.page_memory import planned_kv
from paredown.executors.run_options import RunOptions
from paredown.kernels._core import ThreadError
from paredown.kernels.bitmap_choice import chosen_bitmap
from paredown.kernels.isa import chosen_isa
from paredown.kernels.native_model import NativeModel
from paredown.kernels.packed_file import PackedFile, PackedFileError
from paredown.kernels.padded_heads import with_padded_heads
from paredown.kernels.probe import available_memory_bytes
from paredown.models.checkpoint import Checkpoint
from paredown.models.kv_scales import used_kv_scales
from paredown.spec.context import Context
from paredown.spec.kv import KVSpec
from paredown.spec.weight import SHORT_BF16_ISAS, ActivationDType


class NativeLoading:
    """A checkpoint that is being loaded into a native executor."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        options: RunOptions,
        context: Context,
        kv: KVSpec,
        plan: MemoryPlan,
        encoder: "NativeLoading | None" = None,
    ) -> None:
        self._checkpoint = checkpoint
        self._encoder = encoder
        self._context = context
        self._kv = kv
        self._threads = options.thread_plan
        self._plan = plan
        self._activations = options.activations
        self._cache = _packed_cache(checkpoint, options, plan)
        self._file = None if self._cache is None else self._cache.find()
        mapped_plan = plan.without_packing()
        (plan if self._file is None else mapped_plan).check(available_memory_bytes())
        self._model = self._empty_model()

    @classmethod
    def start(cls, checkpoint: Checkpoint, options: RunOptions) -> "NativeLoading":
        """Checks that the model fits, and starts verifying packed weights that `options.cache`
        keeps. Raises what `load_executor` raises."""
        context = Context(spec=with_padded_heads(checkpoint.spec), sinks=options.sinks)
        if options.activations is not None:
            _check_inputs(checkpoint, options.activations)
        kv = planned_kv(checkpoint, options, available_memory_bytes(), context.spec)
        plan = plan_memory(checkpoint, kv, options.thread_plan.most, options.sinks)
        if checkpoint.spec.encoder is None:
            return cls(checkpoint, options, context, kv, plan)
        encoder = cls.start_encoder(checkpoint.encoder, encoder_options(options))
        return cls(checkpoint, options, context, kv, plan.beside(encoder._plan), encoder)

    @classmethod
    def start_encoder(cls, checkpoint: Checkpoint, options: RunOptions) -> "NativeLoading":
        """Does for an encoder what `start` does. Raises what `load_encoder` raises."""
        context = Context(spec=with_padded_heads(checkpoint.spec))
        if options.activations is not None:
            _check_inputs(checkpoint, options.activations)
        kv = encoder_kv(checkpoint, options)
        plan = plan_encoder_memory(checkpoint, kv, options.thread_plan.most)
        return cls(checkpoint, options, context, kv, plan)

    def finish(self) -> NativeExecutor:
        """See Loading.finish. It waits for the verification, or packs the weights."""
        source = self._fill()
        if self._encoder is not None:
            self._encoder._fill()
        return NativeExecutor(
            self._model,
            self._kv,
            weights_from=source,
            cache=self._cache,
            activations=self._activations,
            encoder=None if self._encoder is None else self._encoder._model,
        )

    def finish_encoder(self) -> NativeEncoder:
        """Does for an encoder what `finish` does."""
        source = self._fill()
        return NativeEncoder(
            self._model,
            self._kv,
            weights_from=source,
            cache=self._cache,
            activations=self._activations,
        )

    def _fill(self) -> WeightSource:
        """Maps or packs the weights, and returns where they came from."""
        if self._is_mapped():
            return "cache"
        pack_weights(self._checkpoint, self._model, self._activations)
        if self._cache is not None:
            self._cache.store(self._model)
        return "checkpoint"

    def _empty_model(self) -> NativeModel:
        scales = used_kv_scales(self._checkpoint, self._kv)
        return NativeModel(self._context, self._kv, self._threads, scales)

    def _is_mapped(self) -> bool:
        if self._file is None:
            return False
        assert self._cache is not None
        try:
            self._file.verify()
            self._borrow(self._file)
            return True
        except PackedFileError as error:
            self._cache.reject(self._file.path, error)
        except (MemoryError, ThreadError) as error:
            self._cache.pass_over(self._file.path, error)
        self._file = None
        self._plan.check(available_memory_bytes())
        return False

    def _borrow(self, file: PackedFile) -> None:
        """Raises PackedFileError for intact blobs that do not belong to this model."""
        try:
            self._model.borrow(file.blobs())
        except Exception as error:  # the core may raise anything for bad blobs
            self._model = self._empty_model()
            raise PackedFileError(f"its contents are odd: {type(error).__name__}") from error


def _packed_cache(
    checkpoint: Checkpoint, options: RunOptions, plan: MemoryPlan
) -> PackedCache | None:
    """Returns the cache that `options` ask for, unless the weights are too small to keep."""
    cache, activations = options.cache, options.activations
    if cache is None or plan.weight_bytes < cache.min_bytes:
        return None
    varied: dict[str, str] = {} if activations is None else {"activations": activations}
    if chosen_isa() in SHORT_BF16_ISAS:
        varied["bf16"] = "short"
    if chosen_bitmap() != "auto":
        varied["bitmap"] = chosen_bitmap()
    if not checkpoint.spec.generates:
        # Beside the decoder of the same files, where there is one.
        varied["part"] = "encoder"
    num_threads = options.thread_plan.most
    return PackedCache(checkpoint, cache, num_threads=num_threads, options=varied)


def _check_inputs(checkpoint: Checkpoint, activations: ActivationDType) -> None:
    """Raises ConfigError if integers are asked for but no weight takes any: the inputs would stay
    floats."""
    specs = checkpoint.weight_specs().values()
    if activations.startswith("int") and not any(
        "int8_group" in spec.possible_activations for spec in specs
    ):
        raise ConfigError(
            "the weights of this model are floats, whose inputs are not rounded to integers",
            seen=f"activations {activations}",
            remedy="Leave --activations out, or compress the model first (paredown compress).",
        )
