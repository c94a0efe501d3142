"""Loads a checkpoint into an executor; all loading goes through this module.

An executor's own modules are imported on first use, so that a process that serves on the native
core never imports torch.
"""

from collections.abc import Callable
from typing import Protocol

from paredown.errors import ConfigError
from paredown.executors.protocol import LoadedExecutor
from paredown.executors.run_options import ExecutorName, RunOptions
from paredown.kernels.native_model import NativeModel
from paredown.models.checkpoint import Checkpoint
from paredown.spec.kv import KVSpec


class Loading(Protocol):
    """A checkpoint that is being loaded into an executor."""

    def finish(self) -> LoadedExecutor:
        """Returns the executor when it is ready for steps. It must be called only once."""
        ...


def load_executor(checkpoint: Checkpoint, options: RunOptions | None = None) -> LoadedExecutor:
    """Loads the weights of a checkpoint; `options` None means RunOptions().

    Raises CapacityError with the arithmetic, before loading, if the model does not fit. Raises
    UnsupportedError for shapes or formats that the executor does not take. Raises ConfigError for
    a number of threads or pages out of range, and for activations that a weight cannot be
    multiplied with. It also raises ConfigError for a format of keys and values that is unknown or
    lacks scales in the checkpoint.
    """
    return start_loading(checkpoint, options).finish()


def start_loading(checkpoint: Checkpoint, options: RunOptions | None = None) -> Loading:
    """Starts what `load_executor` does, for a caller with other work before `finish`. Mapped
    weights are verified meanwhile. Raises the same errors."""
    options = RunOptions() if options is None else options
    name = options.executor_name
    if name not in _STARTERS:
        raise ConfigError(
            "there is no such executor", seen=name, remedy=f"Use {', '.join(_STARTERS)}, or auto."
        )
    return _STARTERS[name](checkpoint, options)


def run_native_model(model: NativeModel, kv: KVSpec) -> LoadedExecutor:
    """Returns an executor over a native model that was filled without a checkpoint."""
    from paredown.executors.native.native_executor import NativeExecutor

    return NativeExecutor(model, kv)


def _start_native(checkpoint: Checkpoint, options: RunOptions) -> Loading:
    from paredown.executors.native.loading import NativeLoading

    return NativeLoading.start(checkpoint, options)


def _start_torch(checkpoint: Checkpoint, options: RunOptions) -> Loading:
    from paredown.executors.torch.loading import TorchLoading

    return TorchLoading.start(checkpoint, options)


_STARTERS: dict[ExecutorName, Callable[[Checkpoint, RunOptions], Loading]] = {
    "native": _start_native,
    "torch": _start_torch,
}
