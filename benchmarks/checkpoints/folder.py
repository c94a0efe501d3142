"""Writes a Hugging Face folder with random bf16 weights of a given config.json."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.checkpoints.shapes import Config
from benchmarks.checkpoints.tokenizer import make_vocabulary, special_token_ids, write_tokenizer
from paredown.formats.tensor import StoredTensor, float32_to_bf16
from paredown.models.config import family_from_config, spec_from_config
from paredown.models.families.family import Family
from paredown.models.families.table import FAMILIES
from paredown.models.files.output_folder import output_folder
from paredown.models.files.shard_writer import write_shards
from paredown.models.names import Names
from paredown.models.roles import layer_vectors, model_vectors
from paredown.spec.model import ModelSpec

# Rows drawn at once: bounds the float32 temporaries to some tens of megabytes.
CHUNK_VALUES = 1 << 22
# Added to norms (around one) and biases (around zero), so that none can be left out unseen.
VECTOR_SPREAD = 0.1


def write_random_checkpoint(config: Config, folder: Path, seed: int = 0) -> None:
    """Writes a whole bf16 checkpoint with a tokenizer to `folder`, which must not exist."""
    spec = spec_from_config(config)
    with output_folder(folder) as partial:
        (partial / "config.json").write_text(json.dumps(dict(config), indent=2) + "\n")
        vocabulary = make_vocabulary(spec.vocab_size, special_token_ids(config))
        write_tokenizer(partial, vocabulary)
        write_shards(partial, random_tensors(spec, seed, family_from_config(config)))


def random_tensors(
    spec: ModelSpec, seed: int, family: Family | None = None
) -> Iterator[tuple[str, StoredTensor]]:
    """Yields every tensor of a checkpoint by name; matrices keep the variance of their input.
    `family` None is that of the spec."""
    rng = np.random.default_rng(seed)
    prefix = "model." if spec.encoder is None else ""
    names = Names(family=family or FAMILIES[spec.family], prefix=prefix)
    yield f"{names.embedding}.weight", _matrix(rng, spec.vocab_size, spec.hidden_size)
    if spec.encoder is not None:
        yield from _stack(spec.encoder, names.encoder, rng)
    yield from _stack(spec, names, rng)
    if not spec.is_tied:
        yield f"{names.output}.weight", _matrix(rng, spec.vocab_size, spec.hidden_size)


def _stack(
    spec: ModelSpec, names: Names, rng: np.random.Generator
) -> Iterator[tuple[str, StoredTensor]]:
    """Yields the tensors of all layers, and of what stands beside them."""
    if spec.relative_shape is not None:
        yield f"{names.relative_biases}.weight", _matrix(rng, *spec.relative_shape)
    for layer in range(spec.num_layers):
        for role, (num_rows, num_columns) in spec.linear_shapes(layer).items():
            yield f"{names.linear(role, layer)}.weight", _matrix(rng, num_rows, num_columns)
        for role, (num_rows, num_columns) in spec.router_shapes(layer).items():
            yield f"{names.router(role, layer)}.weight", _matrix(rng, num_rows, num_columns)
        for role, size in layer_vectors(spec, layer).items():
            yield _vector_name(names, role, layer), _vector(rng, role, size)
    for role, size in model_vectors(spec).items():
        yield _vector_name(names, role, None), _vector(rng, role, size)


def _matrix(rng: np.random.Generator, num_rows: int, num_columns: int) -> StoredTensor:
    bits = np.empty((num_rows, num_columns), np.uint16)
    chunk_rows = max(1, CHUNK_VALUES // num_columns)
    for start in range(0, num_rows, chunk_rows):
        rows = bits[start : start + chunk_rows]
        values = rng.standard_normal(rows.shape, dtype=np.float32)
        rows[:] = float32_to_bf16(values / np.float32(np.sqrt(num_columns)))
    return StoredTensor(dtype="BF16", array=bits)


def _vector(rng: np.random.Generator, role: str, size: int) -> StoredTensor:
    values: npt.NDArray[np.float32] = rng.standard_normal(size, dtype=np.float32)
    values *= np.float32(VECTOR_SPREAD)
    if role.endswith(".weight"):
        values += np.float32(1)
    return StoredTensor(dtype="BF16", array=float32_to_bf16(values))


def _vector_name(names: Names, role: str, layer: int | None) -> str:
    owner, suffix = role.rsplit(".", 1)
    is_linear = owner in names.family.linears
    module = names.linear(owner, layer or 0) if is_linear else names.norm(owner, layer)
    return f"{module}.{suffix}"
