"""Loads a checkpoint into an executor; all loading goes through this module.

An executor's own modules are imported on first use, so that a process that serves on the native
core never imports torch.
"""

from collections.abc import Callable
from typing import Protocol

from paredown.errors import ConfigError, UnsupportedError
from paredown.executors.encoder_checks import check_encodes, check_generates
from paredown.executors.encoder_protocol import EncoderExecutor
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
    check_generates(checkpoint.spec)
    name = options.executor_name
    if name not in _STARTERS:
        raise ConfigError(
            "there is no such executor", seen=name, remedy=f"Use {', '.join(_STARTERS)}, or auto."
        )
    return _STARTERS[name](checkpoint, options)


def load_encoder(checkpoint: Checkpoint, options: RunOptions | None = None) -> EncoderExecutor:
    """Loads the weights of a model with a head; `options` None means RunOptions().

    Raises UnsupportedError for a model without a head, and for one that the executor does not run.
    Raises CapacityError, before loading, if it does not fit, and ConfigError for options that it
    cannot have.
    """
    options = RunOptions() if options is None else options
    check_encodes(checkpoint.spec)
    name = options.executor_name
    if name not in _ENCODERS:
        raise UnsupportedError(
            "this executor runs no encoders",
            seen=name,
            remedy=f"Use {', '.join(_ENCODERS)}.",
        )
    return _ENCODERS[name](checkpoint, options)


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


def _torch_encoder(checkpoint: Checkpoint, options: RunOptions) -> EncoderExecutor:
    from paredown.executors.torch.torch_encoder import load_torch_encoder

    return load_torch_encoder(checkpoint, options)


def _native_encoder(checkpoint: Checkpoint, options: RunOptions) -> EncoderExecutor:
    from paredown.executors.native.loading import NativeLoading

    return NativeLoading.start_encoder(checkpoint, options).finish_encoder()


_ENCODERS: dict[ExecutorName, Callable[[Checkpoint, RunOptions], EncoderExecutor]] = {
    "native": _native_encoder,
    "torch": _torch_encoder,
}
_STARTERS: dict[ExecutorName, Callable[[Checkpoint, RunOptions], Loading]] = {
    "native": _start_native,
    "torch": _start_torch,
}
