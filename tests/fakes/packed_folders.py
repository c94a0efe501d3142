"""Writes tiny models in compressed-tensors form, for tests to alter."""

import json
from collections.abc import Callable
from pathlib import Path

import torch

from fakes.tiny_models import VARIANTS
from paredown.formats.quantize import quantize
from paredown.formats.stored.compressed_tensors.form import encode
from paredown.formats.stored.compressed_tensors.write_section import quantization_config
from paredown.formats.tensor import StoredTensor
from paredown.models.checkpoint import Checkpoint
from paredown.models.files.safetensors_file import write_safetensors
from paredown.spec.weight import WeightSpec


def packed_tensors(checkpoint: Checkpoint, spec: WeightSpec) -> dict[str, StoredTensor]:
    """Returns the checkpoint's tensors, with linear layers rounded to `spec` and packed."""
    tensors = dict(checkpoint.tensors)
    for layer in range(checkpoint.spec.num_layers):
        for role in checkpoint.spec.linear_shapes(0):
            module = checkpoint.linear_name(role, layer)
            weight = quantize(checkpoint.linear(role, layer).dequantize(), spec, "fp32")
            del tensors[f"{module}.weight"]
            tensors |= {f"{module}.{name}": tensor for name, tensor in encode(weight).items()}
    return tensors


def write_packed(
    folder: Path,
    variant: str,
    spec: WeightSpec,
    edit: Callable[[dict[str, StoredTensor]], object] = lambda tensors: None,
) -> None:
    VARIANTS[variant](folder, torch.float32, 0)
    tensors = packed_tensors(Checkpoint.open(folder), spec)
    edit(tensors)
    write_safetensors(folder / "model.safetensors", tensors, {"format": "pt"})
    edit_config(folder, quantization_config=quantization_config(spec, ["lm_head"]))


def edit_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
