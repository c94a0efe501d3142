"""Writes a tiny Llama in GPTQ and AWQ form as their tools do: a section in config.json and each
linear layer's tensors."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from fakes.tiny_models import make_model
from paredown.formats.grid_weight import GridWeight
from paredown.formats.quantize import quantize
from paredown.formats.stored.awq import encode_awq
from paredown.formats.stored.gptq import encode_gptq
from paredown.formats.tensor import StoredTensor
from paredown.models.checkpoint import Checkpoint
from paredown.models.files.safetensors_file import read_safetensors
from paredown.models.files.shard_writer import write_shards
from paredown.spec.weight import WeightSpec

# Multiples of groups up to 128 and of whole words of any width.
WIDE = {"hidden_size": 128, "intermediate_size": 256}
MODULE = "model.layers.1.mlp.down_proj"

Tensors = dict[str, StoredTensor]
Edit = Callable[[Tensors], object]
Encode = Callable[[str, GridWeight], Tensors]


def gptq_section(spec: WeightSpec, version: int = 1, **others: object) -> dict[str, object]:
    return {
        "quant_method": "gptq",
        "bits": spec.bits,
        "group_size": spec.group_size or -1,
        "desc_act": False,
        "sym": spec.symmetric,
        "checkpoint_format": {1: "gptq", 2: "gptq_v2"}[version],
        "pack_dtype": "int32",
        "meta": {"quantizer": ["gptqmodel:5.0.0"], "damp_percent": 0.01},
        **others,
    }


def awq_section(group_size: int | None = 32, **others: object) -> dict[str, object]:
    return {
        "quant_method": "awq",
        "bits": 4,
        "group_size": group_size or -1,
        "zero_point": True,
        "version": "gemm",
        "modules_to_not_convert": None,
        **others,
    }


def write_folder(
    folder: Path,
    section: dict[str, object],
    spec_of: Callable[[str], WeightSpec | None],
    encode: Encode,
    *,
    edit: Edit = lambda tensors: None,
    shard_bytes: int = 1 << 30,
) -> None:
    """Writes a folder. `spec_of` names each module's format (None: floats); weights are rounded to
    nearest with fp16 scales. `edit` changes the tensors before they are written."""
    make_model("llama", torch.float16, 0, **WIDE).save_pretrained(folder)
    source = Checkpoint.open(folder)
    tensors: Tensors = dict(source.tensors)
    for layer in range(source.spec.num_layers):
        for role in source.spec.linear_shapes(0):
            module = source.linear_name(role, layer)
            spec = spec_of(module)
            if spec is None:
                continue
            weight = quantize(source.linear(role, layer).dequantize(), spec, "fp16")
            del tensors[f"{module}.weight"]
            parts = encode(module, weight)
            tensors |= {f"{module}.{suffix}": part for suffix, part in parts.items()}
    edit(tensors)
    write_shards(
        folder, iter({name: own_copy(one) for name, one in tensors.items()}.items()), shard_bytes
    )
    if (folder / "model.safetensors.index.json").exists():
        (folder / "model.safetensors").unlink()
    edit_config(folder, quantization_config=section)


def write_gptq(folder: Path, spec: WeightSpec, version: int = 1, **options) -> None:
    section = options.pop("section", gptq_section(spec, version))
    write_folder(
        folder,
        section,
        lambda module: spec,
        lambda module, weight: encode_gptq(weight, version),
        **options,
    )


def write_awq(folder: Path, group_size: int | None = 32, **options) -> None:
    spec = WeightSpec(dtype="int4", group_size=group_size, symmetric=False)
    section = options.pop("section", awq_section(group_size))
    write_folder(
        folder, section, lambda module: spec, lambda module, weight: encode_awq(weight), **options
    )


def reorder(seed: int = 0) -> Edit:
    """Returns an edit that reorders MODULE's columns as act order does."""

    def edit(tensors: Tensors) -> None:
        groups = tensors[f"{MODULE}.g_idx"].array
        mixed = np.random.default_rng(seed).permutation(groups)
        tensors[f"{MODULE}.g_idx"] = StoredTensor(dtype="I32", array=mixed)

    return edit


def own_copy(tensor: StoredTensor) -> StoredTensor:
    return StoredTensor(dtype=tensor.dtype, array=tensor.array.copy())


def edit_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def file_bytes(folder: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Returns every tensor's dtype, shape and bytes."""
    tensors = read_safetensors(folder / "model.safetensors")
    return {name: (one.dtype, one.shape, one.array.tobytes()) for name, one in tensors.items()}
