"""Checkpoint: a Hugging Face folder or a GGUF file. Opening it checks everything; tensors are then
read one by one."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from paredown.errors import CheckpointError, naming
from paredown.formats.gguf.block_format import BlockFormat
from paredown.formats.grid_weight import GridWeight
from paredown.formats.stored import floats
from paredown.formats.stored.kv_scheme import NO_SCHEME, KVScheme
from paredown.formats.stored.stored_form import Quantization, StoredForm
from paredown.formats.stored.table import STORED_FORMATS, read_quantization
from paredown.formats.tensor import StoredTensor
from paredown.formats.weight import CoreWeight
from paredown.models.check_tensors import (
    check_contents,
    embedding_module,
    linear_modules,
    vector_tensor,
)
from paredown.models.config import check_runs, family_from_config, read_config
from paredown.models.encoder_settings import EncoderSettings
from paredown.models.families.fields import Fields
from paredown.models.files.json_file import read_json_object, read_optional_json_object
from paredown.models.files.mapped_file import MappedFile
from paredown.models.files.shards import FolderTensors, read_folder_tensors
from paredown.models.fused_experts import split_experts
from paredown.models.fused_rows import own_rows
from paredown.models.gguf.checkpoint import is_gguf, open_gguf
from paredown.models.heads.found_encoder import find_encoder
from paredown.models.held_notes import padded_notes
from paredown.models.kept_layers import read_kept_layers
from paredown.models.module_tensors import ModuleTensors
from paredown.models.names import Names, find_names
from paredown.models.pruned_modules import read_pruned
from paredown.models.renamed_tensors import renamed_tensors
from paredown.models.roles import layer_vectors, model_vectors
from paredown.models.stored_inputs import stored_inputs
from paredown.models.text_part import text_config, text_tensors
from paredown.shown import shown_lines
from paredown.spec.kv import KVDType
from paredown.spec.model import ModelSpec
from paredown.spec.run_form import run_form
from paredown.spec.weight import ActivationDType, WeightSpec


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """An opened model. Roles of linear layers are q, k, v, o, gate, up, down and those of experts
    (spec/experts.py); layers count from 0.

    `tensors`     the tensors that the model uses, by their names in the files and as stored there
    `files`       the safetensors files, or the parts of a GGUF file
    `file_bytes`  their size
    `forms`       how each quantized linear module of a folder is stored, by its name
    `blocks`      the formats of a GGUF file's tensors, by name; nothing for a folder
    `notes`       notes on everything that runs differently from what the files ask
    `kv`          the format that the files ask for keys and values
    `kv_scales`   the scales stored for that, by name (models/kv_scales.py)
    `inputs`      by module, what its inputs are rounded to where the files override the format
    `kept_layers` the original's number of each layer if whole layers were removed, else None
    `pruned`      the pattern of the zeros of each linear module that the files say was pruned
    `own_head`    the tensors of the head that lie in files of their own, by role
    `encoder_settings`  what the files say of an encoder's texts; None for a model that generates
                  and nothing else
    """

    path: Path
    config: Mapping[str, object]
    spec: ModelSpec
    tensors: Mapping[str, StoredTensor]
    files: Sequence[MappedFile]
    file_bytes: int
    names: Names
    forms: Mapping[str, StoredForm] = field(default_factory=dict)
    blocks: Mapping[str, BlockFormat] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    kv: KVScheme = NO_SCHEME
    kv_scales: Mapping[str, StoredTensor] = field(default_factory=dict)
    inputs: Mapping[str, ActivationDType] = field(default_factory=dict)
    kept_layers: tuple[int, ...] | None = None
    pruned: Mapping[str, str] = field(default_factory=dict)
    own_head: Mapping[str, StoredTensor] = field(default_factory=dict)
    encoder_settings: EncoderSettings | None = None

    @classmethod
    def open(cls, path: Path) -> "Checkpoint":
        """Maps the folder's files, or a file that ends in .gguf, and checks names, shapes and
        dtypes of all tensors against the config. It reads no weights. Raises CheckpointError or
        UnsupportedError."""
        if is_gguf(path):
            return cls._open_gguf(path)
        _check_folder(path)
        whole = _read_config(path)
        config, part_notes = text_config(whole)
        family = family_from_config(config)
        check_runs(family)
        spec, config_notes = read_config(config)
        tensors = split_experts(text_tensors(read_folder_tensors(path), whole), family)
        tensors = renamed_tensors(tensors, family)
        quantization = _read_quantization(config, tensors)
        encoder = find_encoder(path, config, family, spec, tensors)
        spec, names = encoder.spec, find_names(family, tensors, encoder.head)
        contents = check_contents(tensors, spec, names, quantization)
        return cls(
            path=path,
            config=config,
            spec=spec,
            tensors=FolderTensors(tensors.files, contents.used),
            files=[*tensors.files, *encoder.files],
            file_bytes=tensors.file_bytes + sum(file.file_bytes for file in encoder.files),
            names=names,
            forms=contents.forms,
            notes=shown_lines(
                *part_notes,
                *config_notes,
                *encoder.notes,
                *_notes(quantization, contents.forms, spec, names),
                *padded_notes(spec, names, contents.forms.__contains__),
            ),
            kv=NO_SCHEME if quantization is None else quantization.kv,
            kv_scales=FolderTensors(tensors.files, contents.kv_scales),
            inputs=stored_inputs(whole, _input_specs(contents.forms, names)),
            kept_layers=read_kept_layers(whole, spec.num_layers),
            pruned=read_pruned(whole, names.layer_modules(spec)),
            own_head=encoder.tensors,
            encoder_settings=encoder.settings,
        )

    @classmethod
    def _open_gguf(cls, path: Path) -> "Checkpoint":
        model = open_gguf(path)
        coded = {
            name.removesuffix(".weight") for name, one in model.blocks.items() if one.is_quantized
        }
        return cls(
            path=model.file.path,
            config=model.config,
            spec=model.spec,
            tensors=model.tensors,
            files=model.file.files,
            file_bytes=model.file.file_bytes,
            names=model.names,
            blocks=model.blocks,
            encoder_settings=model.settings,
            notes=shown_lines(
                *model.notes, *padded_notes(model.spec, model.names, coded.__contains__)
            ),
        )

    @property
    def kv_dtype(self) -> KVDType:
        """Returns the format of keys and values that applies unless the user chooses another."""
        return self.kv.dtype or "bf16"

    @property
    def is_quantized(self) -> bool:
        """Whether any tensor is stored as codes."""
        return bool(self.forms) or any(block.is_quantized for block in self.blocks.values())

    def is_coded(self, module: str) -> bool:
        """Returns whether that linear module or embedding is stored as codes."""
        block = self.blocks.get(f"{module}.weight")
        return module in self.forms or (block is not None and block.is_quantized)

    def release(self) -> None:
        """Gives the memory of everything read so far back to the system
        (models/files/mapped_file.py)."""
        for file in self.files:
            file.release()

    def linear_name(self, role: str, layer: int) -> str:
        """Returns the module's name in the checkpoint; GPT-2's q, k and v share one."""
        return self.names.linear(role, layer)

    def linear(self, role: str, layer: int) -> CoreWeight:
        """Returns the stored numbers of a linear layer as [out, in], not dequantized."""
        source = self.names.source(role)
        weight = self._weight(self.names.linear(role, layer), source.transposed)
        return weight.rows(self._own_rows(role, layer)) if source.fused else weight

    def coded(self, module: str) -> CoreWeight:
        """Returns the stored numbers of a module for which `is_coded` holds, with the rows of all
        its roles."""
        return self._weight(module)

    def router(self, role: str, layer: int) -> StoredTensor:
        """Returns the "router" or "shared_gate" of a layer with experts, [out, hidden], always in
        floats."""
        return self.tensors[f"{self.names.router(role, layer)}.weight"]

    def embedding(self) -> CoreWeight:
        """Returns the embedding, [vocab, hidden], in floats or quantized."""
        return self._weight(self.names.embedding)

    def output(self) -> CoreWeight:
        """Returns the output layer, [vocab, hidden]; this is the embedding where the two are
        tied."""
        return self.embedding() if self.spec.is_tied else self._weight(self.names.output)

    def position_embedding(self) -> StoredTensor | None:
        """Returns the table of a model with learned positions, [max_positions + offset, hidden],
        else None."""
        if self.spec.position_shape is None:
            return None
        return self.tensors[f"{self.names.position_embedding}.weight"]

    def token_type_embedding(self) -> StoredTensor | None:
        """Returns the table of token types, [num_token_types, hidden], or None."""
        if not self.spec.embedding.num_token_types:
            return None
        return self.tensors[f"{self.names.token_type_embedding}.weight"]

    def relative_biases(self) -> StoredTensor | None:
        """Returns the table of relative positions that layers share, [buckets, heads], or None."""
        if self.spec.relative_shape is None:
            return None
        return self.tensors[f"{self.names.relative_biases}.weight"]

    @property
    def encoder(self) -> "Checkpoint":
        """The encoder of an encoder-decoder, as a checkpoint of its own in the same files."""
        assert self.spec.encoder is not None
        return replace(self, spec=self.spec.encoder, names=self.names.encoder)

    def head_weight(self, role: str) -> CoreWeight:
        """Returns the weight of the head's step "head.0", "head.token.0", ..., [out, in]; this is
        the embedding for a step that is tied to it."""
        assert self.spec.head is not None
        if self.spec.head.steps_by_role()[role].is_tied:
            return self.embedding()
        name = self.names.head.get(f"{role}.weight")
        if name is None:
            return floats.decode(self.own_head[f"{role}.weight"])
        return self._weight(name.removesuffix(".weight"))

    def head_vector(self, role: str) -> npt.NDArray[np.float32] | None:
        """Returns the values of a head's bias or norm, "head.0.bias" or "head.0.norm.weight", or
        None where the head has none."""
        if self.spec.head is None or role not in self.spec.head.vector_sizes():
            return None
        return self._head_tensor(role).to_float32()

    def _head_tensor(self, role: str) -> StoredTensor:
        name = self.names.head.get(role)
        return self.own_head[role] if name is None else self.tensors[name]

    def vector(self, role: str, layer: int | None = None) -> npt.NDArray[np.float32] | None:
        """Returns the values of a norm or bias, or None where the spec has none. Roles in a layer
        are "attention_norm.weight", "mlp_norm.bias", "q_norm.weight", "q.bias" and so on;
        "final_norm.weight" has no layer."""
        known = model_vectors(self.spec) if layer is None else layer_vectors(self.spec, layer)
        if role not in known:
            return None
        values = self.tensors[vector_tensor(self.names, role, layer)].to_float32()
        owner = role.rsplit(".", 1)[0]
        if layer is None or owner not in self.names.family.linears:
            return values
        return values[self._own_rows(owner, layer)] if self.names.source(owner).fused else values

    def _own_rows(self, role: str, layer: int) -> slice | npt.NDArray[np.integer]:
        """Returns which rows of its module belong to the role."""
        roles, shapes = self.names.fused(role), self.spec.linear_shapes(layer)
        sizes = [shapes[one][0] for one in roles]
        num_blocks = self.names.num_blocks(role, self.spec.layers[layer])
        return own_rows(sizes, roles.index(role), num_blocks)

    def weight_specs(self) -> dict[str, WeightSpec]:
        """Returns by module name how each linear module and the embedding are stored."""
        embedding = embedding_module(self.spec, self.names)
        modules = (embedding, *linear_modules(self.spec, self.names))
        return {module.name: self._stored_spec(module.name) for module in modules}

    def embedding_spec(self) -> WeightSpec:
        """Returns how the embedding table is stored."""
        return self._stored_spec(self.names.embedding)

    def _stored_spec(self, module: str) -> WeightSpec:
        form = self.forms.get(module)
        if form is None:
            return self._plain_spec(module)
        return self._with_inputs(form.spec, module)

    def _with_inputs(self, spec: WeightSpec, module: str) -> WeightSpec:
        chosen = self.inputs.get(module)
        return spec if chosen is None else replace(spec, activations=chosen)

    def _weight(self, module: str, transposed: bool = False) -> CoreWeight:
        form = self.forms.get(module)
        if form is None:
            return self._plain(module, transposed)
        with naming(f"{self.path}: module {module}"):
            tensors = ModuleTensors(self.tensors, module, form.suffixes)
            weight = form.decode(tensors).for_core()
        if module not in self.inputs:
            return weight
        assert isinstance(weight, GridWeight), "floats and blocks have no inputs to choose"
        return replace(weight, spec=self._with_inputs(weight.spec, module))

    def _plain(self, module: str, transposed: bool = False) -> CoreWeight:
        """Reads a weight that is a single tensor: floats, or the blocks of a GGUF file."""
        name = f"{module}.weight"
        stored = self.tensors[name]
        if name in self.blocks:
            with naming(f"{self.path}: module {module}"):
                return self.blocks[name].decode(stored.array.view(np.uint8))
        return floats.decode(stored, transposed=transposed)

    def _plain_spec(self, module: str) -> WeightSpec:
        name = f"{module}.weight"
        if name in self.blocks:
            return self.blocks[name].spec
        return floats.spec_of(self.tensors[name])


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


def _read_config(path: Path) -> dict[str, object]:
    """Reads config.json. AutoGPTQ's first versions described the quantization in a separate
    file."""
    config = read_json_object(path / "config.json")
    for stored in STORED_FORMATS.values():
        if stored.file is None or config.get("quantization_config") is not None:
            continue
        section = read_optional_json_object(path / stored.file)
        if section:
            config["quantization_config"] = {"quant_method": stored.method, **section}
    return config


def _read_quantization(
    config: Mapping[str, object], tensor_names: Collection[str]
) -> Quantization | None:
    """Returns how the linear modules are packed, or None for a checkpoint all in floats."""
    section = config.get("quantization_config")
    if section is None:
        return None
    if not isinstance(section, dict):
        raise Fields(config).wrong("quantization_config", "an object")
    return read_quantization(section, tensor_names)


def _input_specs(forms: Mapping[str, StoredForm], names: Names) -> dict[str, WeightSpec]:
    """Returns the specs of the modules that are stored as codes and multiply an input."""
    return {name: form.spec for name, form in forms.items() if name != names.embedding}


def _notes(
    quantization: Quantization | None,
    forms: Mapping[str, StoredForm],
    spec: ModelSpec,
    names: Names,
) -> tuple[str, ...]:
    """Returns the notes, each with the modules that it is about."""
    modules: dict[str, list[str]] = {}
    for module in linear_modules(spec, names):
        form = forms.get(module.name)
        if form is None:
            continue
        notes = form.notes
        if run_form(form.spec, module.shape[1]).is_dequantized:
            size = form.spec.group_size
            notes += (f"groups of {size} columns have no kernel, so the weights run dequantized",)
        for note in notes:
            modules.setdefault(note, []).append(module.name)
    told = () if quantization is None else quantization.notes
    return told + tuple(
        f"{note} ({len(own)} linear layer{'s' if len(own) > 1 else ''}: {own[0]}"
        f"{', ...' if len(own) > 1 else ''})"
        for note, own in modules.items()
    )
