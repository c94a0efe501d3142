"""Zeros of a pruned weight stay exactly 0 in every quantizer and format, in what is stored, and in
what other libraries read (llm-compressor#153, sparseml#2281)."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationConfig
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM, CompressedTensorsConfig

from fakes.packed_folders import edit_config
from fakes.tiny_models import VARIANTS
from paredown.compress.quantize.aqlm import AQLM
from paredown.compress.quantize.awq import AWQ
from paredown.compress.quantize.gptq import GPTQ
from paredown.compress.quantize.hqq import HQQ
from paredown.compress.quantize.llm_int8 import LLMInt8
from paredown.compress.quantize.method import (
    LayerTarget,
    Moments,
    Quantizer,
    Transform,
    check_holds_zeros,
)
from paredown.compress.quantize.rescale import linear_weight
from paredown.compress.quantize.rtn import RTN
from paredown.compress.quantize.smoothquant import SmoothQuant
from paredown.errors import UnsupportedError
from paredown.formats.grid_weight import GridWeight
from paredown.formats.stored.compressed_tensors.form import encode, form_of, written_form
from paredown.formats.stored.compressed_tensors.write_section import quantization_config
from paredown.formats.table import FORMATS, RECIPE_FORMATS
from paredown.formats.tensor import StoredTensor
from paredown.models.checkpoint import Checkpoint
from paredown.models.files.safetensors_file import write_safetensors
from paredown.models.roles import linear_roles
from paredown.spec.weight import ScaleDType, WeightSpec
from references.gptq import gptq_reference
from references.plain_block import tiny_block

QUANTIZERS: dict[str, Quantizer] = {
    "rtn": RTN(),
    "rtn-mse": RTN(range="mse"),
    "rtn-percentile": RTN(range="percentile"),
    "rtn-tensor": RTN(per_tensor=True),
    "hqq": HQQ(num_iterations=4),
    "gptq": GPTQ(),
    "gptq-dynamic": GPTQ(static_groups=False),
}
GRIDS = (
    *("int8", "int8-asym", "int4-g32", "int4-g32-asym", "int2-g64-asym", "int1-asym"),
    *("fp8", "fp8-g128", "w4a8-g32-qoq", "w4a8-g32-asym-qoq"),
)
TORCH_DTYPES = {"BF16": torch.bfloat16, "F8_E4M3": torch.float8_e4m3fn}


def random_layer(seed: int, num_rows: int, num_columns: int) -> tuple[Tensor, Moments]:
    generator = torch.Generator().manual_seed(seed)
    x_NI = torch.randn(2 * num_columns, num_columns, generator=generator, dtype=torch.float64)
    mixing_II = torch.randn(num_columns, num_columns, generator=generator, dtype=torch.float64)
    x_NI = x_NI @ (mixing_II / num_columns**0.5 + torch.eye(num_columns, dtype=torch.float64))
    weight_OI = torch.randn(num_rows, num_columns, generator=generator, dtype=torch.float64)
    # Rows whose middle is not 0 put the zero point of an asymmetric grid near an end.
    weight_OI += 2 * torch.randn(num_rows, 1, generator=generator, dtype=torch.float64)
    moments = Moments(hessian_II=2 / x_NI.shape[0] * x_NI.T @ x_NI, num_rows=x_NI.shape[0])
    return 0.02 * weight_OI, moments


def masks(weight_OI: Tensor, seed: int) -> Tensor:
    """2:4, half of the weights, all of a row, all of a group, a row of a single weight, nothing."""
    generator = torch.Generator().manual_seed(seed)
    mask_OI = torch.rand(weight_OI.shape, generator=generator) < 0.5
    quads = weight_OI[:2].abs().unflatten(1, (-1, 4))
    best = quads.topk(2, dim=-1).indices
    mask_OI[:2] = torch.zeros_like(quads, dtype=torch.bool).scatter(-1, best, True).flatten(1)
    mask_OI[2] = False
    mask_OI[3, :32] = False
    mask_OI[4] = False
    mask_OI[4, 7] = True
    mask_OI[5] = True
    return mask_OI


def decompressed(weight: GridWeight) -> Tensor:
    """The values that the compressed-tensors library makes of the stored weight."""
    section = QuantizationConfig.model_validate(quantization_config(weight.spec, ["lm_head"]))
    stored = encode(weight)
    tensors = {
        suffix: tensor.view(TORCH_DTYPES[stored[suffix].dtype])
        if stored[suffix].dtype in TORCH_DTYPES
        else tensor
        for suffix, one in stored.items()
        for tensor in [torch.from_numpy(one.array.copy())]
    }
    compressor = BaseCompressor.get_value_from_registry(form_of(weight.spec))
    return compressor.decompress(tensors, section.config_groups["group_0"])["weight"]


@pytest.mark.parametrize("name", GRIDS)
def test_zeros_stay_zero_in_every_format(name: str) -> None:
    # The weights under the mask need not be 0 yet.
    weight_OI, moments = random_layer(1, 12, 128)
    mask_OI = masks(weight_OI, 2)
    target = LayerTarget(spec=RECIPE_FORMATS[name], scale_dtype="bf16", mask_OI=mask_OI)
    for method in QUANTIZERS.values():
        weight = method.quantize(weight_OI, target, moments).weight
        assert isinstance(weight, GridWeight)
        read_OI = torch.from_numpy(written_form(weight.spec).decode(encode(weight)).dequantize())
        for values_OI in (torch.from_numpy(weight.at_work()), decompressed(weight), read_OI):
            assert not values_OI[~mask_OI].any()
            assert values_OI[mask_OI].any()


@pytest.mark.parametrize("scale_dtype", ["fp32", "fp16"])
def test_zeros_stay_zero_with_scales_of_any_dtype(scale_dtype: ScaleDType) -> None:
    weight_OI, moments = random_layer(3, 12, 128)
    mask_OI = masks(weight_OI, 4)
    for name in ("int4-g32-asym", "fp8"):
        for scale in (1.0, 1e-9, 1e4):
            target = LayerTarget(spec=FORMATS[name], scale_dtype=scale_dtype, mask_OI=mask_OI)
            for method in (RTN(), HQQ(num_iterations=2), GPTQ(static_groups=False)):
                done = method.quantize(scale * weight_OI, target, moments)
                assert not done.values()[~mask_OI].any()


def test_zeros_stay_zero_in_llm_int8() -> None:
    weight_OI, _ = random_layer(5, 12, 128)
    mask_OI = masks(weight_OI, 6)
    target = LayerTarget(spec=FORMATS["int8"], scale_dtype="bf16", mask_OI=mask_OI)
    values_OI = LLMInt8().quantize(weight_OI, target, None).values()
    assert not values_OI[~mask_OI].any()
    assert values_OI[mask_OI].any()


def test_a_mask_that_keeps_everything_changes_nothing() -> None:
    weight_OI, moments = random_layer(7, 12, 128)
    plain = LayerTarget(spec=FORMATS["int4-g32-asym"], scale_dtype="bf16")
    whole = replace(plain, mask_OI=torch.ones(12, 128, dtype=torch.bool))
    for method in QUANTIZERS.values():
        first = method.quantize(weight_OI, plain, moments).weight
        second = method.quantize(weight_OI, whole, moments).weight
        assert isinstance(first, GridWeight)
        assert isinstance(second, GridWeight)
        np.testing.assert_array_equal(first.values_OI, second.values_OI)
        np.testing.assert_array_equal(first.scales_OG, second.scales_OG)


@settings(max_examples=15, deadline=None)
@given(
    act_order=st.booleans(),
    static_groups=st.booleans(),
    name=st.sampled_from(["int4-g32", "int3-g32-asym", "int8", "fp8"]),
    share=st.floats(0, 1),
    seed=st.integers(0, 2**32 - 1),
)
def test_gptqs_codes_are_those_of_the_plain_recursion(
    act_order: bool, static_groups: bool, name: str, share: float, seed: int
) -> None:
    weight_OI, moments = random_layer(seed, 3, 64)
    mask_OI = torch.rand(3, 64, generator=torch.Generator().manual_seed(seed)) >= share
    method = GPTQ(act_order=act_order, static_groups=static_groups, range="minmax")
    target = LayerTarget(spec=FORMATS[name], scale_dtype="fp32", mask_OI=mask_OI)
    done = method.quantize(weight_OI, target, moments)
    codes_OI, scales_OG, zeros_OG = gptq_reference(
        weight_OI.numpy(),
        moments.hessian_II.numpy(),
        FORMATS[name],
        "fp32",
        method,
        mask_OI.numpy(),
    )
    groups = 64 // scales_OG.shape[1]
    expected_OI = (codes_OI - zeros_OG.repeat(groups, 1)) * scales_OG.repeat(groups, 1)
    np.testing.assert_allclose(done.values(), expected_OI, rtol=1e-5, atol=1e-12)
    change_OI = weight_OI - done.values().double()
    trace = 0.5 * torch.trace(change_OI @ moments.hessian_II @ change_OI.T).item()
    assert done.loss == pytest.approx(trace, rel=1e-4, abs=1e-9)


def test_gptq_compensates_for_zeros_as_for_errors() -> None:
    for seed in range(5):
        weight_OI, moments = random_layer(seed, 32, 128)
        mask_OI = torch.rand(32, 128, generator=torch.Generator().manual_seed(seed)) < 0.7
        target = LayerTarget(spec=FORMATS["int4-g32"], scale_dtype="bf16", mask_OI=mask_OI)
        losses = []
        for method in (GPTQ(), RTN(range="mse")):
            change_OI = weight_OI - method.quantize(weight_OI, target, moments).values().double()
            losses.append(torch.trace(change_OI @ moments.hessian_II @ change_OI.T).item())
        assert losses[0] < 0.9 * losses[1]


def test_a_fallback_holds_zeros_too() -> None:
    weight_OI, _ = random_layer(8, 12, 128)
    mask_OI = masks(weight_OI, 8)
    nothing = Moments(hessian_II=torch.zeros(128, 128), num_rows=0)
    target = LayerTarget(spec=FORMATS["int4-g32-asym"], scale_dtype="bf16", mask_OI=mask_OI)
    done = GPTQ().quantize(weight_OI, target, nothing)
    assert "no input but zeros" in done.notes[0]
    assert not done.values()[~mask_OI].any()


def test_codebooks_are_refused() -> None:
    weight_OI, moments = random_layer(9, 12, 128)
    target = LayerTarget(
        spec=WeightSpec(dtype="bf16"), scale_dtype="bf16", mask_OI=masks(weight_OI, 9)
    )
    with pytest.raises(UnsupportedError, match="AQLM would fill the zeros"):
        AQLM().quantize(weight_OI, target, moments)
    with pytest.raises(UnsupportedError, match="AQLM"):
        check_holds_zeros(AQLM())
    for method in (*QUANTIZERS.values(), LLMInt8()):
        check_holds_zeros(method)


@pytest.mark.parametrize(
    ("transform", "name"),
    [
        (AWQ(num_tokens=16), "int4-g32-asym"),
        (AWQ(num_tokens=16), "w4a8-g32-qoq"),
        (SmoothQuant(alpha=0.5), "w8a8"),
    ],
)
def test_transforms_keep_zeros(transform: Transform, name: str, tmp_path: Path) -> None:
    block = tiny_block("llama-gqa", tmp_path)
    block.layer.mlp_norm.weight.data[:4] *= 12
    masks_by_role = {}
    for role in linear_roles(block.spec, 0):
        weight_OI = linear_weight(block.layer, role)
        masks_by_role[role] = torch.rand_like(weight_OI) < 0.5
        weight_OI.mul_(masks_by_role[role])
    before = linear_weight(block.layer, "gate").clone()
    spec = RECIPE_FORMATS[name]
    targets = {
        role: LayerTarget(spec=spec, scale_dtype="bf16", mask_OI=mask_OI)
        for role, mask_OI in masks_by_role.items()
    }
    found = transform.apply(block, targets)
    assert not torch.equal(linear_weight(block.layer, "gate"), before)
    for role, mask_OI in masks_by_role.items():
        weight_OI = linear_weight(block.layer, role)
        assert not weight_OI[~mask_OI].any()
        target = replace(targets[role], grid=found.grids.get(role))
        assert not RTN().quantize(weight_OI, target, None).values()[~mask_OI].any()


def prune_two_of_four(folder: Path) -> dict[str, Tensor]:
    """Writes a tiny Llama whose linear layers are 2:4. Returns its tensors."""
    VARIANTS["llama-gqa"](folder, torch.float32, 0)
    checkpoint = Checkpoint.open(folder)
    tensors = dict(checkpoint.tensors)
    for layer in range(checkpoint.spec.num_layers):
        for role in checkpoint.spec.linear_shapes(0):
            values_OI = torch.from_numpy(checkpoint.linear(role, layer).dequantize().copy())
            quads = values_OI.unflatten(1, (-1, 4))
            quads.scatter_(-1, quads.abs().topk(2, largest=False).indices, 0.0)
            name = f"{checkpoint.linear_name(role, layer)}.weight"
            tensors[name] = StoredTensor(dtype="F32", array=values_OI.numpy())
    write_safetensors(folder / "model.safetensors", tensors, {"format": "pt"})
    return load_file(folder / "model.safetensors")


@pytest.mark.filterwarnings("ignore:You passed `quantization_config`:UserWarning")
@pytest.mark.parametrize(
    ("method", "name"),
    [
        (RTN(), "int4-g32-asym"),
        (HQQ(num_iterations=2), "int4-g32-asym"),
        (GPTQ(), "int4-g32-asym"),
        (GPTQ(), "int8"),
        (GPTQ(), "fp8"),
    ],
)
def test_transformers_reads_every_zero_of_a_pruned_folder(
    method: Quantizer, name: str, tmp_path: Path
) -> None:
    before = prune_two_of_four(tmp_path)
    checkpoint, spec = Checkpoint.open(tmp_path), FORMATS[name]
    tensors = dict(checkpoint.tensors)
    pruned = []
    for layer in range(checkpoint.spec.num_layers):
        for role in checkpoint.spec.linear_shapes(0):
            module = checkpoint.linear_name(role, layer)
            weight_OI = before[f"{module}.weight"]
            _, moments = random_layer(layer, 1, weight_OI.shape[1])
            target = LayerTarget(spec=spec, scale_dtype="fp32", mask_OI=weight_OI != 0)
            weight = method.quantize(weight_OI, target, moments).weight
            assert isinstance(weight, GridWeight)
            del tensors[f"{module}.weight"]
            tensors |= {f"{module}.{key}": tensor for key, tensor in encode(weight).items()}
            pruned.append(f"{module}.weight")
    write_safetensors(tmp_path / "model.safetensors", tensors, {"format": "pt"})
    edit_config(tmp_path, quantization_config=quantization_config(spec, ["lm_head"]))
    how = CompressedTensorsConfig(dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(tmp_path, quantization_config=how)
    after = dict(model.named_parameters())
    for key in pruned:
        assert not after[key][before[key] == 0].any()
        assert after[key].any()
        assert int((after[key].unflatten(1, (-1, 4)) != 0).sum(-1).max()) <= 2
