"""Transformers on PyTorch, eager: bf16, or PyTorch's own int8 and int4 products with the very codes
and scales of our compressed folder. They take bf16 activations; where ours are int8 with a scale
for a row of weights (w8a8), PyTorch quantizes its own, too, with one scale for all of a call."""

import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import transformers

from benchmarks.checkpoints.cache import Variant, bf16_folder, paredown_folder
from benchmarks.peers.peer import LoadOptions, PeerInfo
from paredown.errors import UnsupportedError
from paredown.formats.grid_weight import GridWeight
from paredown.models.checkpoint import Checkpoint
from paredown.models.roles import linear_roles

INT8_ZERO = 128
# Group sizes that PyTorch's int4 product has kernels for.
INT4_GROUP_SIZES = (32, 64, 128, 256)


class Int8Linear(torch.nn.Module):
    """int8 codes with a scale per row."""

    def __init__(self, weight: GridWeight, bias: torch.Tensor | None) -> None:
        super().__init__()
        assert weight.scales_OG is not None
        codes = weight.values_OI.astype(np.int16) - INT8_ZERO
        self._codes_OI = torch.from_numpy(codes.astype(np.int8))
        self._scales_O = torch.from_numpy(weight.scales_OG[:, 0].copy()).bfloat16()
        self._bias_O = bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.reshape(-1, x.shape[-1])
        y = torch._weight_int8pack_mm(flat, self._codes_OI, self._scales_O)
        y = y if self._bias_O is None else y + self._bias_O
        return y.reshape(*x.shape[:-1], -1)


class Int8DynamicLinear(torch.nn.Module):
    """int8 codes with a scale per row, and inputs quantized to 8 bits at each call, through oneDNN:
    no slower than PyTorch's own dynamic layers, which it will remove (docs/log.md 2026-11-25)."""

    def __init__(self, weight: GridWeight, bias: torch.Tensor | None) -> None:
        super().__init__()
        assert weight.scales_OG is not None
        codes = weight.values_OI.astype(np.int16) - INT8_ZERO
        codes_OI = torch.from_numpy(codes.astype(np.int8))
        self._packed = torch.ops.onednn.qlinear_prepack(codes_OI, None)
        self._scales_O = torch.from_numpy(weight.scales_OG[:, 0].copy())
        self._zeros_O = torch.zeros(len(self._scales_O), dtype=torch.int64)
        self._bias_O = None if bias is None else bias.float()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.reshape(-1, x.shape[-1])
        scale = flat.abs().amax().item() / 127
        codes = (flat.float() * (1 / scale)).round_().add_(INT8_ZERO).to(torch.uint8)
        weight = self._packed, self._scales_O, self._zeros_O, self._bias_O
        y: torch.Tensor = torch.ops.onednn.qlinear_pointwise(
            codes, scale, INT8_ZERO, *weight, 1.0, 0, x.dtype, "none", [], ""
        )
        return y.reshape(*x.shape[:-1], -1)


class Int4Linear(torch.nn.Module):
    """int4 codes with a scale per row and group."""

    def __init__(self, weight: GridWeight, bias: torch.Tensor | None) -> None:
        super().__init__()
        assert weight.scales_OG is not None
        assert weight.spec.group_size in INT4_GROUP_SIZES
        self._group_size = weight.spec.group_size
        codes_OI = torch.from_numpy(weight.values_OI.astype(np.int32))
        self._packed = torch._convert_weight_to_int4pack_for_cpu(codes_OI, 1)
        scales_GO = torch.from_numpy(weight.scales_OG.T.copy())
        zeros_GO = torch.zeros_like(scales_GO)
        self._scales_and_zeros = torch.stack([scales_GO, zeros_GO], dim=2).bfloat16().contiguous()
        self._bias_O = bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.reshape(-1, x.shape[-1])
        y = torch._weight_int4pack_mm_for_cpu(
            flat, self._packed, self._group_size, self._scales_and_zeros
        )
        y = y if self._bias_O is None else y + self._bias_O
        return y.reshape(*x.shape[:-1], -1)


Layer = type[Int8Linear] | type[Int8DynamicLinear] | type[Int4Linear]


def layer_of(weight: GridWeight) -> Layer:
    if weight.spec.dtype == "int4":
        return Int4Linear
    assert weight.spec.dtype == "int8", weight.spec
    return Int8DynamicLinear if weight.spec.activations == "int8_row" else Int8Linear


class PyTorchPeer:
    """Implements Peer."""

    def __init__(self) -> None:
        self._model: Any = None
        self._cache: Any = None
        self._filled: Sequence[Sequence[int]] = ()

    def info(self) -> PeerInfo:
        capability = torch.backends.cpu.get_cpu_capability()
        return PeerInfo(
            version=f"{torch.__version__}, transformers {version('transformers')}",
            instruction_sets=f"PyTorch says {capability}; oneDNN chooses for itself",
        )

    def load(self, root: Path, variant: Variant, options: LoadOptions) -> None:
        self.close()
        if options.kv_dtype != "bf16":
            raise UnsupportedError(
                "Transformers computes with bf16 keys and values",
                seen=options.kv_dtype,
                remedy="Leave it out of this case.",
            )
        torch.set_num_threads(options.num_threads)
        self._model = transformers.AutoModelForCausalLM.from_pretrained(
            bf16_folder(root, variant.model), dtype=torch.bfloat16, attn_implementation="sdpa"
        )
        self._model.eval()
        if variant.format != "bf16":
            _quantize(self._model, Checkpoint.open(paredown_folder(root, variant)))

    def prefill(self, token_ids: Sequence[int]) -> float:
        self._filled = ()
        started = time.perf_counter()
        self._run([token_ids], transformers.DynamicCache())
        return time.perf_counter() - started

    def decode(self, prompts: Sequence[Sequence[int]], num_steps: int) -> float:
        if self._filled == prompts:
            # A negative number removes as many tokens.
            self._cache.crop(len(prompts[0]) - self._cache.get_seq_length())
        else:
            self._cache = transformers.DynamicCache()
            self._run(prompts, self._cache)
            self._filled = prompts
        started = time.perf_counter()
        for step in range(num_steps):
            self._run([[prompt[step % len(prompt)]] for prompt in prompts], self._cache)
        return time.perf_counter() - started

    def settings(self) -> dict[str, str]:
        return {"execution": "eager", "attention": "sdpa"}

    def logits(self, token_ids: Sequence[int]) -> npt.NDArray[np.float32]:
        found: npt.NDArray[np.float32] = (
            self._run([token_ids], transformers.DynamicCache())[0, -1].float().numpy()
        )
        return found

    def close(self) -> None:
        self._model, self._cache, self._filled = None, None, ()

    def _run(self, token_ids: Sequence[Sequence[int]], cache: Any) -> torch.Tensor:
        with torch.inference_mode():
            found: torch.Tensor = self._model(
                torch.tensor(token_ids), past_key_values=cache, use_cache=True, logits_to_keep=1
            ).logits
        return found


def _quantize(model: Any, checkpoint: Checkpoint) -> None:
    """Puts quantized layers in place of those that the checkpoint has quantized."""
    for layer in range(checkpoint.spec.num_layers):
        for role in linear_roles(checkpoint.spec, layer):
            name = checkpoint.linear_name(role, layer)
            weight = checkpoint.linear(role, layer)
            assert isinstance(weight, GridWeight)
            _replace(model, name, weight)
    output = checkpoint.output()
    if output.spec.is_integer:
        assert isinstance(output, GridWeight)
        _replace(model, checkpoint.names.output, output)


def _replace(model: Any, name: str, weight: GridWeight) -> None:
    owner, attribute = name.rsplit(".", 1) if "." in name else ("", name)
    parent = model.get_submodule(owner)
    bias = getattr(parent, attribute).bias
    setattr(parent, attribute, layer_of(weight)(weight, bias))
