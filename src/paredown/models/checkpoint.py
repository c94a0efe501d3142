"""Checkpoint: a Hugging Face folder, checked whole when it is opened and read tensor by tensor."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from paredown.errors import CheckpointError
from paredown.formats.compressed_tensors import decode, tensor_suffixes
from paredown.formats.quantization_config import (
    CompressedTensorsConfig,
    parse_quantization_config,
)
from paredown.formats.tensor import StoredTensor
from paredown.formats.weight import Weight
from paredown.models.config import family_from_config, spec_from_config
from paredown.models.contents import (
    FLOAT_DTYPES,
    check_contents,
    linear_modules,
    num_parts,
    packed_spec,
    vector_tensor,
)
from paredown.models.families.fields import Fields
from paredown.models.json_file import read_json_object
from paredown.models.names import Names, find_names
from paredown.models.roles import layer_vectors, model_vectors, position_embedding_shape
from paredown.models.safetensors_file import MappedTensors
from paredown.models.shards import FolderTensors, read_folder_tensors
from paredown.spec.model import ModelSpec
from paredown.spec.weight import WeightSpec


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """Roles of linear layers are q, k, v, o, gate, up, down; layers count from 0.

    `tensors`     the tensors that the model uses, by their names in the files and as stored there
    `files`       the safetensors files
    `file_bytes`  their size
    """

    path: Path
    config: Mapping[str, object]
    spec: ModelSpec
    tensors: Mapping[str, StoredTensor]
    files: Sequence[MappedTensors]
    file_bytes: int
    names: Names
    quantization: CompressedTensorsConfig | None

    @classmethod
    def open(cls, path: Path) -> "Checkpoint":
        """Maps the folder's files and checks names, shapes and dtypes of all tensors against the
        config. Raises CheckpointError or UnsupportedError; the weights are not read."""
        _check_folder(path)
        config = read_json_object(path / "config.json")
        spec = spec_from_config(config)
        quantization = _read_quantization(config)
        tensors = read_folder_tensors(path)
        names = find_names(family_from_config(config), tensors)
        used = check_contents(tensors, spec, names, quantization)
        return cls(
            path=path,
            config=config,
            spec=spec,
            tensors=FolderTensors(tensors.files, used),
            files=tensors.files,
            file_bytes=tensors.file_bytes,
            names=names,
            quantization=quantization,
        )

    def linear_name(self, role: str, layer: int) -> str:
        """The module's name in the checkpoint; GPT-2's q, k and v share one."""
        return self.names.linear(role, layer)

    def linear(self, role: str, layer: int) -> Weight:
        """The stored numbers of a linear layer as [out, in], not dequantized."""
        source = self.names.source(role)
        weight = self._weight(self.names.linear(role, layer), source.transposed)
        if source.num_parts == 1:
            return weight
        assert not weight.spec.is_quantized
        size = weight.shape[0] // source.num_parts
        rows = slice(source.part * size, (source.part + 1) * size)
        return Weight(spec=weight.spec, values_OI=weight.values_OI[rows])

    def embedding(self) -> Weight:
        """[vocab, hidden]."""
        return self._float(self.names.embedding)

    def output(self) -> Weight:
        """The output layer, [vocab, hidden]; the embedding where the two are tied."""
        return self.embedding() if self.spec.tied_embeddings else self._weight(self.names.output)

    def position_embedding(self) -> StoredTensor | None:
        """[max_positions + offset, hidden] of a model with learned positions, else None."""
        if position_embedding_shape(self.spec) is None:
            return None
        return self.tensors[f"{self.names.position_embedding}.weight"]

    def vector(self, role: str, layer: int | None = None) -> npt.NDArray[np.float32] | None:
        """A norm's or a bias' values, or None where the spec has none: "attention_norm.weight",
        "mlp_norm.bias", "q_norm.weight", "q.bias", ... of a layer, "final_norm.weight" of none."""
        known = model_vectors(self.spec) if layer is None else layer_vectors(self.spec)
        if role not in known:
            return None
        values = self.tensors[vector_tensor(self.spec, self.names, role, layer)].to_float32()
        part = 0
        if num_parts(self.names, role) > 1:
            part = self.names.source(role.rsplit(".", 1)[0]).part
        return values[part * known[role] : (part + 1) * known[role]]

    def weight_specs(self) -> dict[str, WeightSpec]:
        """How each linear module and the embedding is stored, by module name."""
        specs = {self.names.embedding: self.embedding().spec}
        for module in linear_modules(self.spec, self.names):
            packed = packed_spec(self.quantization, module.name, module.transposed)
            specs[module.name] = packed or self._float(module.name).spec
        return specs

    def _weight(self, module: str, transposed: bool = False) -> Weight:
        packed = packed_spec(self.quantization, module, transposed)
        if packed is None:
            return self._float(module, transposed)
        suffixes = tensor_suffixes(packed)
        stored = {suffix: self.tensors[f"{module}.{suffix}"] for suffix in suffixes}
        try:
            return decode(stored, packed)
        except CheckpointError as error:
            what = f"{self.path}: module {module}: {error.what}"
            raise CheckpointError(what, seen=error.seen, remedy=error.remedy) from error

    def _float(self, module: str, transposed: bool = False) -> Weight:
        stored = self.tensors[f"{module}.weight"]
        values = np.ascontiguousarray(stored.array.T) if transposed else stored.array
        return Weight(spec=WeightSpec(dtype=FLOAT_DTYPES[stored.dtype]), values_OI=values)


def _check_folder(path: Path) -> None:
    try:
        entries = sorted(entry.name for entry in path.iterdir())
    except OSError as error:
        raise CheckpointError(
            f"{path} is not a checkpoint folder",
            seen=error.strerror or error,
            remedy="Name the folder that holds config.json and model.safetensors.",
        ) from error
    if "config.json" not in entries:
        raise CheckpointError(
            f"{path} has no config.json",
            seen=", ".join(entries) or "an empty folder",
            remedy="Name the folder of a Hugging Face checkpoint.",
        )


def _read_quantization(config: Mapping[str, object]) -> CompressedTensorsConfig | None:
    """How the linear modules are packed, None for a checkpoint all in floats."""
    section = config.get("quantization_config")
    if section is None:
        return None
    if not isinstance(section, dict):
        raise Fields(config).wrong("quantization_config", "an object")
    return parse_quantization_config(section)
