"""Writes the decoder's weights as a checkpoint folder, after pruning or training.

The inverse of read.py: names become the checkpoint's again, roles that share a module are joined,
and config.json gets the decoder's current sizes.
"""

from collections.abc import Container, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from torch import Tensor

from paredown.formats.floating import cast
from paredown.formats.tensor import STORED_DTYPES, StoredTensor
from paredown.models.check_tensors import vector_tensor
from paredown.models.checkpoint import Checkpoint
from paredown.models.config_fields import config_of
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.layer import Layer
from paredown.models.decoder.stored_rows import stored_rows
from paredown.models.files.folder_files import copy_files, float_config, name_dtype, write_config
from paredown.models.files.output_folder import Finish, output_folder
from paredown.models.files.shard_writer import write_shards
from paredown.models.names import Names
from paredown.models.roles import layer_vectors, linear_roles, model_vectors
from paredown.spec.weight import ScaleDType

Floats = npt.NDArray[np.float32]

_FLOAT_DTYPES: tuple[ScaleDType, ...] = ("fp32", "bf16", "fp16")


def write_decoder(
    decoder: Decoder,
    source: Checkpoint,
    output: Path,
    *,
    dtype: ScaleDType | None = None,
    overwrite: bool = False,
    finish: Finish | None = None,
) -> dict[str, int]:
    """Writes the folder `output`, which appears whole or not at all, with the tokenizer and config
    of `source`. Config fields of changed sizes are updated. Weights are rounded to `dtype`; None
    keeps the dtype that each has in `source`, and float32 where it is stored as codes. `finish` is
    called with the whole folder before it appears. Returns by tensor how many values were out of
    range and became the largest one.

    Raises UnsupportedError for sizes that the family's config cannot express, and OutputError
    when `output` cannot be written.
    """
    config = float_config(config_of(decoder.spec, source.config))
    if dtype is not None:
        name_dtype(config, dtype)
    clamped: dict[str, int] = {}
    with output_folder(output, overwrite) as folder:
        copy_files(source.path, folder)
        write_shards(folder, _stored(decoder, source, dtype, clamped))
        write_config(folder, config)
        Checkpoint.open(folder)
        if finish is not None:
            finish(folder)
    return clamped


def _stored(
    decoder: Decoder, source: Checkpoint, dtype: ScaleDType | None, clamped: dict[str, int]
) -> Iterator[tuple[str, StoredTensor]]:
    for name, values in decoder_tensors(decoder, source):
        result = cast(values, dtype or _stored_dtype(source, name))
        if result.num_clamped:
            clamped[name] = result.num_clamped
        yield name, result.tensor


def _stored_dtype(source: Checkpoint, name: str) -> ScaleDType:
    stored = source.tensors.get(name)
    if stored is None or name in source.blocks:
        return "fp32"
    dtype = STORED_DTYPES.get(stored.dtype)
    return next((one for one in _FLOAT_DTYPES if one == dtype), "fp32")


def decoder_tensors(
    decoder: Decoder, source: Checkpoint, *, coded: Container[str] = ()
) -> Iterator[tuple[str, Floats]]:
    """Yields every tensor of a folder with its name there, without the weights of the linear
    modules that are `coded`."""
    names = source.names
    yield f"{names.embedding}.weight", _values(decoder.embedding.weight)
    yield from _tables(decoder, names)
    for layer in decoder.layers:
        assert isinstance(layer, Layer)
        yield from _layer_tensors(decoder, layer, source, coded)
    for role in model_vectors(decoder.spec):
        yield vector_tensor(names, role, None), _values(decoder.get_parameter(role))
    for role, name in names.head.items():
        yield name, _values(decoder.get_parameter(role))
    if decoder.spec.has_own_output:
        yield f"{names.output}.weight", _values(decoder.output.weight)


def _tables(decoder: Decoder, names: Names) -> Iterator[tuple[str, Floats]]:
    if decoder.spec.position_shape is not None:
        yield f"{names.position_embedding}.weight", _values(decoder.position_embedding.weight)
    if decoder.spec.embedding.num_token_types:
        yield f"{names.token_type_embedding}.weight", _values(decoder.token_type_embedding.weight)
    if decoder.spec.relative_shape is not None:
        biases_RH = decoder.layers[0].get_parameter("relative_biases")
        yield f"{names.relative_biases}.weight", _values(biases_RH)


def _layer_tensors(
    decoder: Decoder, layer: Layer, source: Checkpoint, coded: Container[str]
) -> Iterator[tuple[str, Floats]]:
    names, spec, index = source.names, decoder.spec, layer.index
    vectors = layer_vectors(spec, index)
    for name, roles in names.modules(linear_roles(spec, index), index).items():
        if name not in coded:
            weight_OI = _fused(layer, [f"{role}.weight" for role in roles], source, roles[0])
            transposed = names.source(roles[0]).transposed
            yield f"{name}.weight", np.ascontiguousarray(weight_OI.T) if transposed else weight_OI
        if f"{roles[0]}.bias" in vectors:
            biases = [f"{role}.bias" for role in roles]
            yield f"{name}.bias", _fused(layer, biases, source, roles[0])
    for role in spec.router_shapes(index):
        yield f"{names.router(role, index)}.weight", _values(layer.get_parameter(f"{role}.weight"))
    for role in vectors:
        if role.rsplit(".", 1)[0] in spec.layers[index].norms.by_role():
            yield vector_tensor(names, role, index), _values(layer.get_parameter(role))


def _fused(layer: Layer, parameters: list[str], source: Checkpoint, role: str) -> Floats:
    parts = [layer.get_parameter(name) for name in parameters]
    return _values(stored_rows(parts, source.names.num_blocks(role, layer.spec)))


def _values(parameter: Tensor) -> Floats:
    return parameter.detach().float().numpy()
