"""RunOptions: how to run a checkpoint on any executor."""

from dataclasses import dataclass
from typing import Literal, TypedDict

from paredown.errors import ConfigError
from paredown.executors.cache_config import CacheConfig
from paredown.kernels.thread_plan import ThreadPlan
from paredown.spec.attention_sinks import AttentionSinks
from paredown.spec.device import Device
from paredown.spec.kv_choice import KVChoice
from paredown.spec.weight import ActivationDType

ExecutorName = Literal["native", "torch"]
ExecutorChoice = Literal["auto", "native", "torch"]


class RunKeywords(TypedDict, total=False):
    """The fields of RunOptions, for functions that take them as keywords and pass them on."""

    executor: ExecutorChoice
    device: Device
    num_pages: int | None
    kv_cache_bytes: int | None
    threads: ThreadPlan | None
    kv_dtype: KVChoice | None
    activations: ActivationDType | None
    cache: CacheConfig | None
    sinks: AttentionSinks | None


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """`executor`        "auto" means the native core on a CPU and PyTorch on a GPU
    `device`          the device that it runs on
    `num_pages`       pages of keys and values; None: from `kv_cache_bytes` or the free memory
    `kv_cache_bytes`  memory for keys and values, in place of `num_pages`
    `threads`         None: all cores
    `kv_dtype`        how keys and values are kept; None: as the checkpoint asks
    `activations`     what the inputs of linear layers are rounded to; a weight that does not take
                      such inputs reads finer ones (executors/native/pack_weights.py). None: as the
                      checkpoint asks, else as its formats say
    `cache`           where packed weights are kept; None: nothing is kept or used
    `sinks`           lets texts be of any length; None: the model's own context

    Raises ConfigError for memory that is given twice or is not a whole number, and for an executor
    that does not run on the device.
    """

    executor: ExecutorChoice = "auto"
    device: Device = "cpu"
    num_pages: int | None = None
    kv_cache_bytes: int | None = None
    threads: ThreadPlan | None = None
    kv_dtype: KVChoice | None = None
    activations: ActivationDType | None = None
    cache: CacheConfig | None = None
    sinks: AttentionSinks | None = None

    def __post_init__(self) -> None:
        if self.executor == "native" and self.device != "cpu":
            raise ConfigError(
                "the native executor runs on a CPU alone",
                seen=f"device {self.device}",
                remedy="Use --executor torch, or --device cpu.",
            )
        num_bytes = self.kv_cache_bytes
        if num_bytes is None:
            return
        if self.num_pages is not None:
            raise ConfigError(
                "the memory for keys and values was given twice",
                seen=f"num_pages {self.num_pages}, kv_cache_bytes {num_bytes}",
                remedy="Leave one of them out.",
            )
        if not isinstance(num_bytes, int) or isinstance(num_bytes, bool):
            raise ConfigError(
                "kv_cache_bytes must be an integer",
                seen=num_bytes,
                remedy="Give whole bytes, as in 2 << 30.",
            )

    @property
    def executor_name(self) -> ExecutorName:
        """The executor's name, with `auto` resolved."""
        if self.executor == "auto":
            return "native" if self.device == "cpu" else "torch"
        return self.executor

    @property
    def thread_plan(self) -> ThreadPlan:
        """The threads of steps; all cores unless the options say otherwise."""
        return ThreadPlan.resolve(None) if self.threads is None else self.threads
