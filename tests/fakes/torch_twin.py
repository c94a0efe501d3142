"""Builds a torch executor on an existing PyTorch decoder, without files."""

from paredown.executors.torch.loading import make_executor
from paredown.executors.torch.torch_executor import TorchExecutor
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.decoder.decoder import Decoder
from paredown.spec.attention_sinks import AttentionSinks
from paredown.spec.context import Context
from paredown.spec.device import Device
from paredown.spec.kv import KVSpec


def torch_twin(
    decoder: Decoder,
    kv: KVSpec,
    num_threads: int = 1,
    sinks: AttentionSinks | None = None,
    device: Device = "cpu",
) -> TorchExecutor:
    """Returns the executor with pages in the format `kv`. The decoder moves to the device too."""
    context = Context(spec=decoder.spec, sinks=sinks)
    threads = ThreadPlan(prefill=num_threads, decode=num_threads)
    return make_executor(decoder.to(device), context, kv, threads, device)
