"""TorchEncoder: turns texts into vectors on the PyTorch decoder, on a CPU or a GPU.

Texts are computed one by one, in float32, so that nothing beside a text can change its bits.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from paredown.errors import CapacityError, UnsupportedError
from paredown.executors.encoder_checks import check_texts
from paredown.executors.encoder_protocol import EncoderOutput, TokenText
from paredown.executors.run_options import RunOptions
from paredown.executors.torch.process import on_threads, torch_arithmetic
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.device import check_device, exact_products, free_bytes
from paredown.spec.device import Device
from paredown.spec.model import ModelSpec
from paredown.units import format_bytes

_FLOAT_BYTES = 4


class TorchEncoder:
    """Implements EncoderExecutor. While it computes PyTorch has as many threads as `threads` says
    for prompts; afterwards the earlier number is restored."""

    def __init__(self, decoder: Decoder, threads: ThreadPlan, device: Device = "cpu") -> None:
        self._decoder = decoder
        self._threads = threads
        self._device: Device = device

    @property
    def spec(self) -> ModelSpec:
        return self._decoder.spec

    @property
    def threads(self) -> ThreadPlan:
        return self._threads

    @property
    def weight_bytes(self) -> int:
        """See EncoderExecutor.weight_bytes; weights are floats in any stored format."""
        return _FLOAT_BYTES * self.spec.num_active_linear_parameters()

    @property
    def arithmetic(self) -> dict[str, str]:
        """PyTorch's build and the device that it runs on."""
        return torch_arithmetic(self._device, self._threads)

    @property
    def known_content(self) -> str | None:
        """Always None, since loading computes no digest."""
        return None

    def encode(
        self, texts: Sequence[TokenText], output: EncoderOutput = "head"
    ) -> npt.NDArray[np.float32]:
        """See EncoderExecutor.encode."""
        check_texts(self.spec, texts)
        # New tensors are made on the encoder's device.
        device = torch.device(self._device)
        with torch.inference_mode(), exact_products(), on_threads(self._threads.prefill), device:
            found = [self._encode(text, output) for text in texts]
        if found:
            return np.concatenate(found)
        head, hidden_size = self.spec.head, self.spec.hidden_size
        is_head = output == "head" and head is not None
        size = head.output_size(hidden_size) if is_head and head is not None else hidden_size
        return np.empty((0, size), np.float32)

    def _encode(self, text: TokenText, output: EncoderOutput) -> npt.NDArray[np.float32]:
        """Returns one row for the text, or one for each of its tokens."""
        ids_BT = torch.tensor([list(text.token_ids)])
        types_BT = None if text.type_ids is None else torch.tensor([list(text.type_ids)])
        if not self.spec.embedding.num_token_types:
            types_BT = None
        y: Tensor = self._decoder.encode(ids_BT, types_BT, text.num_unseen)
        if output == "head":
            y = self._decoder.apply_head(y)
        rows: npt.NDArray[np.float32] = y.reshape(-1, y.shape[-1]).cpu().numpy()
        return rows


def load_torch_encoder(checkpoint: Checkpoint, options: RunOptions) -> TorchEncoder:
    """Loads a checkpoint. Raises what `load_encoder` raises."""
    check_device(options.device)
    if options.activations not in (None, "fp32"):
        raise UnsupportedError(
            "the torch executor does not round the inputs of linear layers",
            seen=f"activations {options.activations}",
            remedy="Use fp32, or --executor native.",
        )
    needed, free = _FLOAT_BYTES * checkpoint.spec.num_parameters(), free_bytes(options.device)
    if needed > free:
        raise CapacityError(
            "the encoder does not fit in memory as float32",
            seen=f"{format_bytes(needed)} of weights, {format_bytes(free)} free",
            remedy="Use --executor native, which keeps weights as they are stored.",
        )
    decoder = Decoder.from_checkpoint(checkpoint, device=options.device)
    return TorchEncoder(decoder, options.thread_plan, options.device)
