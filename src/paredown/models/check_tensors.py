"""Checks a checkpoint's tensors against what its config asks for, without reading any weight."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from paredown.errors import CheckpointError, naming
from paredown.formats.stored.stored_form import Quantization, StoredForm
from paredown.formats.tensor import STORED_DTYPES
from paredown.models.files.shards import FolderTensors
from paredown.models.module_tensors import ModuleTensors
from paredown.models.names import Names
from paredown.models.roles import layer_vectors, model_vectors
from paredown.spec.model import ModelSpec

REMEDY = "Use the config.json that belongs to these weights, or download them again."


@dataclass(frozen=True, kw_only=True)
class Module:
    """A linear layer as stored: `shape` is (out, in), with the rows of all its `roles`."""

    name: str
    shape: tuple[int, int]
    transposed: bool = False
    roles: tuple[str, ...] = ()

    @property
    def float_shape(self) -> tuple[int, int]:
        return (self.shape[1], self.shape[0]) if self.transposed else self.shape


@dataclass(frozen=True, kw_only=True)
class Contents:
    """The names of the tensors that the model uses (`used`), of the stored scales of keys and
    values (`kv_scales`), and the forms of its quantized modules."""

    used: set[str]
    kv_scales: set[str]
    forms: dict[str, StoredForm]


def check_contents(
    tensors: FolderTensors, spec: ModelSpec, names: Names, quantization: Quantization | None
) -> Contents:
    """Raises CheckpointError at the first tensor that is missing, wrong or extra. A config that
    claims endless layers therefore fails at the first missing tensor."""
    used: set[str] = set()
    forms: dict[str, StoredForm] = {}

    def check_weight(module: Module, form: StoredForm | None) -> None:
        if form is None:
            check_float(tensors, f"{module.name}.weight", module.float_shape)
            used.add(f"{module.name}.weight")
        else:
            forms[module.name] = check_packed(tensors, module, form)
            used.update(f"{module.name}.{suffix}" for suffix in form.suffixes)

    table = embedding_module(spec, names)
    check_weight(
        table, None if quantization is None else quantization.form_for_embedding(table.name)
    )
    for name, shape in float_tensors(spec, names):
        check_float(tensors, name, shape)
        used.add(name)
    for module in linear_modules(spec, names):
        check_weight(module, _form_for(quantization, module))
    check_nothing_extra(tensors, used, spec, names, quantization)
    patterns = () if quantization is None else quantization.kv.tensors
    scales = {name for name in tensors if any(re.fullmatch(one, name) for one in patterns)}
    return Contents(used=used, kv_scales=scales, forms=forms)


def embedding_module(spec: ModelSpec, names: Names) -> Module:
    """Returns the embedding table. It is no linear module but may be packed like one."""
    return Module(name=names.embedding, shape=(spec.vocab_size, spec.hidden_size))


def linear_modules(spec: ModelSpec, names: Names) -> Iterator[Module]:
    """Yields every linear module of the layers once, those of an encoder first, the output layer
    unless it is tied, and the steps of the head."""
    if spec.encoder is not None:
        yield from linear_modules(spec.encoder, names.encoder)
    for layer in range(spec.num_layers):
        seen = set()
        shapes = spec.linear_shapes(layer)
        for role, (_, num_columns) in shapes.items():
            name, roles = names.linear(role, layer), names.fused(role)
            if name not in seen:
                seen.add(name)
                yield Module(
                    name=name,
                    shape=(sum(shapes[one][0] for one in roles), num_columns),
                    transposed=names.source(role).transposed,
                    roles=roles,
                )
    if spec.has_own_output:
        yield Module(name=names.output, shape=(spec.vocab_size, spec.hidden_size))
    yield from head_modules(spec, names)


def head_modules(spec: ModelSpec, names: Names) -> Iterator[Module]:
    """Yields the linear layers of the head that lie in the main files. Layers in files of their own
    and a head that is the embedding are left out."""
    if spec.head is None:
        return
    for role, shape in spec.head.step_shapes(spec.hidden_size).items():
        name = names.head.get(f"{role}.weight")
        if name is not None:
            yield Module(name=name.removesuffix(".weight"), shape=shape, roles=(role,))


def router_modules(spec: ModelSpec, names: Names) -> Iterator[str]:
    """Yields every router and every gate of a shared expert. They are multiplied but never
    packed."""
    for layer in range(spec.num_layers):
        for role in spec.router_shapes(layer):
            yield names.router(role, layer)


def float_tensors(spec: ModelSpec, names: Names) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yields (name, shape) of each tensor that is never packed: positions, norms, biases and
    routers, those of an encoder first. A layer's router comes before its experts, so a config of
    endless experts fails here.
    """
    if spec.encoder is not None:
        yield from float_tensors(spec.encoder, names.encoder)
    yield from table_tensors(spec, names)
    for layer in range(spec.num_layers):
        sizes = layer_vectors(spec, layer)
        for role in sizes:
            stored = sum(sizes[one] for one in fused_vectors(names, role))
            yield vector_tensor(names, role, layer), (stored,)
        for role, shape in spec.router_shapes(layer).items():
            yield f"{names.router(role, layer)}.weight", shape
    for role, size in model_vectors(spec).items():
        yield vector_tensor(names, role, None), (size,)
    yield from head_tensors(spec, names)


def table_tensors(spec: ModelSpec, names: Names) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yields (name, shape) of each table beside the embedding."""
    if spec.position_shape is not None:
        yield f"{names.position_embedding}.weight", spec.position_shape
    if spec.embedding.num_token_types:
        shape = (spec.embedding.num_token_types, spec.hidden_size)
        yield f"{names.token_type_embedding}.weight", shape
    if spec.relative_shape is not None:
        yield f"{names.relative_biases}.weight", spec.relative_shape


def head_tensors(spec: ModelSpec, names: Names) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yields (name, shape) of each bias and norm of the head in the main files."""
    sizes = {} if spec.head is None else spec.head.vector_sizes()
    for role, size in sizes.items():
        if role in names.head:
            yield names.head[role], (size,)


def vector_tensor(names: Names, role: str, layer: int | None) -> str:
    """Returns the name of the tensor that holds a norm's or a linear layer's vector."""
    owner, kind = role.rsplit(".", 1)
    if owner in names.family.linears:
        assert layer is not None
        return f"{names.linear(owner, layer)}.{kind}"
    if owner == "output":
        return f"{names.output}.{kind}"
    return f"{names.norm(owner, layer)}.{kind}"


def fused_vectors(names: Names, role: str) -> list[str]:
    """Returns the vectors that share one tensor with the vector of `role`."""
    owner, kind = role.rsplit(".", 1)
    if owner not in names.family.linears:
        return [role]
    return [f"{one}.{kind}" for one in names.fused(owner)]


def check_float(tensors: FolderTensors, name: str, shape: tuple[int, ...]) -> None:
    """Checks that the tensor exists, has that shape and a float dtype."""
    check_present(tensors, name)
    check_shape(tensors, name, shape)
    if tensors.place(name).dtype not in STORED_DTYPES:
        raise CheckpointError(
            f"{tensors.owner(name)}: tensor {name!r} is not of a float dtype that can be run",
            seen=tensors.place(name).dtype,
            remedy=f"Supported are {', '.join(STORED_DTYPES)} and what config.json's "
            "quantization_config names.",
        )


def _form_for(quantization: Quantization | None, module: Module) -> StoredForm | None:
    """Returns the form of a module's weight, or None for floats. Every format packs only torch's
    Linear, so a transposed module never has a form."""
    if quantization is None or module.transposed:
        return None
    return quantization.form_for(module.name)


def check_packed(tensors: FolderTensors, module: Module, form: StoredForm) -> StoredForm:
    """Checks that a module's packed tensors exist and have the shapes that its form gives them.
    Returns the form as refined by a look at the small tensors."""
    with naming(module.name):
        shapes = form.tensor_shapes(module.shape)
    for suffix, wanted in shapes.items():
        check_present(tensors, f"{module.name}.{suffix}")
        check_shape(tensors, f"{module.name}.{suffix}", wanted)
    with naming(module.name):
        return form.settle(ModuleTensors(tensors, module.name, form.suffixes), module.shape)


def check_shape(tensors: FolderTensors, name: str, shape: tuple[int, ...]) -> None:
    if tensors.place(name).shape != shape:
        raise wrong_shape(tensors, name, tensors.place(name).shape, shape)


def wrong_shape(
    tensors: FolderTensors, name: str, seen: tuple[int, ...], wanted: tuple[int, ...]
) -> CheckpointError:
    return CheckpointError(
        f"{tensors.owner(name)}: tensor {name!r} has the wrong shape",
        seen=f"{list(seen)}, config.json asks for {list(wanted)}",
        remedy=REMEDY,
    )


def check_present(tensors: FolderTensors, name: str) -> None:
    if name not in tensors:
        raise CheckpointError(
            f"tensor {name!r} is missing from the checkpoint",
            seen=f"{len(tensors)} tensors in {', '.join(f.path.name for f in tensors.files)}",
            remedy=REMEDY,
        )


def check_nothing_extra(
    tensors: FolderTensors,
    used: set[str],
    spec: ModelSpec,
    names: Names,
    quantization: Quantization | None,
) -> None:
    """Refuses tensors that nobody would read: they mean that config and weights do not belong
    together. It accepts known leftovers: a second copy of a tied embedding, and the zero biases
    that AutoGPTQ adds to every module."""
    unread = () if quantization is None else quantization.kv.tensors
    ignorable = re.compile("|".join((*names.family.ignorable, *unread)) or r"(?!)")
    for name in tensors:
        if name in used or ignorable.fullmatch(name):
            continue
        if quantization is not None and _is_zero_bias(tensors, name):
            continue
        if spec.is_tied and name == f"{names.output}.weight":
            _check_tied_copy(tensors, name, f"{names.embedding}.weight")
            continue
        raise CheckpointError(
            f"{tensors.owner(name)}: tensor {name!r} is not part of the model that config.json "
            "describes",
            seen=f"{tensors.place(name).dtype} {list(tensors.place(name).shape)}",
            remedy=REMEDY,
        )


def _is_zero_bias(tensors: FolderTensors, name: str) -> bool:
    place = tensors.place(name)
    is_vector = name.endswith(".bias") and len(place.shape) == 1 and place.dtype in STORED_DTYPES
    return is_vector and not tensors[name].array.view(np.uint8).any()


def _check_tied_copy(tensors: FolderTensors, name: str, embedding: str) -> None:
    if tensors.place(name).dtype == tensors.place(embedding).dtype and np.array_equal(
        tensors[name].array.view(np.uint8), tensors[embedding].array.view(np.uint8)
    ):
        return
    copy, original = tensors[name], tensors[embedding]
    are_floats = copy.dtype in STORED_DTYPES and original.dtype in STORED_DTYPES
    if are_floats and np.array_equal(copy.to_float32(), original.to_float32()):
        raise CheckpointError(
            f"{tensors.owner(name)}: tensor {name!r} differs in its dtype alone from "
            f"{embedding!r}, to which config.json ties it",
            seen=f"{copy.dtype} and {original.dtype}, the same numbers",
            remedy="Set tie_word_embeddings to false in config.json, or remove the tensor.",
        )
    raise CheckpointError(
        f"{tensors.owner(name)}: tensor {name!r} differs from {embedding!r} though config.json "
        "ties them",
        seen="tie_word_embeddings true, other numbers",
        remedy="Set tie_word_embeddings to false in config.json to run the tensor, or remove the "
        "tensor to run the embedding.",
    )
