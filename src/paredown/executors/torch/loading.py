"""Loads a checkpoint into a torch executor: its weights as float32 on a device."""

from dataclasses import dataclass

from paredown.errors import UnsupportedError
from paredown.executors.page_memory import planned_kv
from paredown.executors.run_options import RunOptions
from paredown.executors.torch.expert_tiles import mix_tile
from paredown.executors.torch.memory_plan import plan_memory
from paredown.executors.torch.pages import check_kept
from paredown.executors.torch.torch_executor import TorchExecutor
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.device import check_device, free_bytes
from paredown.models.decoder.encoder_decoder import EncoderDecoder
from paredown.models.decoder.layer import Layer
from paredown.spec.context import Context
from paredown.spec.device import Device
from paredown.spec.kv import KVSpec
from paredown.spec.model import ModelSpec

_REMEDY = (
    "Use --executor native, which keeps weights as they are stored; serve and bench can also give "
    "less memory to KV pages (--kv-memory)."
)


@dataclass(frozen=True, kw_only=True)
class TorchLoading:
    """A checkpoint that is being loaded into a torch executor."""

    checkpoint: Checkpoint
    context: Context
    kv: KVSpec
    threads: ThreadPlan
    device: Device

    @classmethod
    def start(cls, checkpoint: Checkpoint, options: RunOptions) -> "TorchLoading":
        """Checks that the model can be run and fits. Raises what `load_executor` raises."""
        check_device(options.device)
        _check_activations(options)
        check_causal(checkpoint.spec)
        context = Context(spec=checkpoint.spec, sinks=options.sinks)
        available_bytes = free_bytes(options.device)
        kv = planned_kv(checkpoint, options, available_bytes)
        check_kept(kv, checkpoint.spec.num_layers)
        plan = plan_memory(context, kv, options.device)
        plan.check(available_bytes, remedy=_REMEDY)
        return cls(
            checkpoint=checkpoint,
            context=context,
            kv=kv,
            threads=options.thread_plan,
            device=options.device,
        )

    def finish(self) -> TorchExecutor:
        """See Loading.finish. It reads the weights."""
        encoder = None
        if self.checkpoint.spec.encoder is None:
            decoder = Decoder.from_checkpoint(self.checkpoint, device=self.device)
        else:
            model = EncoderDecoder.from_checkpoint(self.checkpoint, self.device)
            encoder, decoder = model.encoder, model.decoder
        return make_executor(decoder, self.context, self.kv, self.threads, self.device, encoder)


def make_executor(
    decoder: Decoder,
    context: Context,
    kv: KVSpec,
    threads: ThreadPlan,
    device: Device = "cpu",
    encoder: Decoder | None = None,
) -> TorchExecutor:
    """Returns the executor that runs a decoder, with the encoder whose vectors it reads, if it has
    one; the weights must be on that device."""
    for layer in decoder.layers:
        assert isinstance(layer, Layer)
        layer.mix = mix_tile
    return TorchExecutor(decoder, context, kv, threads, device, encoder)


def _check_activations(options: RunOptions) -> None:
    if options.activations not in (None, "fp32"):
        raise UnsupportedError(
            "the torch executor does not round the inputs of linear layers",
            seen=f"activations {options.activations}",
            remedy="Use fp32, or --executor native.",
        )


def check_causal(spec: ModelSpec) -> None:
    """Raises UnsupportedError for a model without causal attention."""
    if not all(layer.attention.is_causal for layer in spec.layer_counts):
        raise UnsupportedError(
            "a model whose tokens see those behind them is not computed in steps",
            seen=spec.family,
            remedy="Call the PyTorch decoder itself (models/decoder/decoder.py).",
        )
