"""Reads a head from the modules of sentence-transformers: pooling, linear layers, normalization,
SPLADE's maxima."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from paredown.errors import CheckpointError, UnsupportedError
from paredown.formats.tensor import StoredTensor
from paredown.models.families.fields import Fields
from paredown.models.families.named_head import NamedHead, NamedStep, named_head
from paredown.models.files.safetensors_file import MappedTensors, read_safetensors
from paredown.models.files.shards import SINGLE_NAME
from paredown.models.files.whole_file import is_there
from paredown.models.heads.module_list import Module
from paredown.spec.head import HeadActivation, HeadKind, HeadStep, PoolingKind

# In the order in which several kinds lie one after the other.
_OLD_POOLINGS: Mapping[str, PoolingKind] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
    "pooling_mode_weightedmean_tokens": "weighted_mean",
    "pooling_mode_lasttoken": "last",
}
_POOLINGS: Mapping[str, PoolingKind] = {
    "cls": "cls",
    "max": "max",
    "mean": "mean",
    "mean_sqrt_len_tokens": "mean_sqrt_len",
    "weightedmean": "weighted_mean",
    "lasttoken": "last",
}
_ACTIVATIONS: Mapping[str, HeadActivation | None] = {
    "Identity": None,
    "Tanh": "tanh",
    "ReLU": "relu",
    "GELU": "gelu",
    "SiLU": "silu",
    "Sigmoid": "sigmoid",
}
# What a module reads and writes: the vector of each text, or those of its tokens.
_OF_TEXTS, _OF_TOKENS = "sentence_embedding", "token_embeddings"
# Modules without effect once a model is trained.
_EMPTY = ("Transformer", "MLMTransformer", "Dropout", "MultiVectorMask")


@dataclass(kw_only=True)
class _Parts:
    """The head so far, as modules are read one by one."""

    pooling: tuple[PoolingKind, ...] = ()
    pools_prompt: bool = True
    token_steps: list[NamedStep] = field(default_factory=list)
    steps: list[NamedStep] = field(default_factory=list)
    tensors: dict[str, StoredTensor] = field(default_factory=dict)
    files: list[MappedTensors] = field(default_factory=list)
    is_normalized: bool = False
    is_sparse: bool = False


@dataclass(frozen=True, kw_only=True)
class ModuleHead:
    """A head, the tensors of its steps that lie in files of their own, by role, and these files.
    `pools_prompt` says whether a prompt's tokens count in a text's vector."""

    head: NamedHead
    tensors: Mapping[str, StoredTensor]
    files: tuple[MappedTensors, ...]
    pools_prompt: bool


def read_module_head(
    path: Path, modules: Sequence[Module], hidden_size: int, masked_lm: Sequence[NamedStep] | None
) -> ModuleHead:
    """Reads the head of the folder `path`. `masked_lm` has the steps of a head that predicts masked
    tokens, None where the family has none. Raises CheckpointError for damaged modules and
    UnsupportedError for those that a head cannot express."""
    parts = _Parts()
    for module in modules:
        _check_place(module, parts)
        if module.kind == "Pooling":
            _read_pooling(module.fields, parts)
        elif module.kind == "SpladePooling":
            _read_splade(module.fields, parts, masked_lm)
        elif module.kind == "Normalize":
            # One for vectors of texts has no effect where there are only those of tokens.
            is_of_tokens = module.fields.text("module_input_name", _OF_TEXTS) == _OF_TOKENS
            parts.is_normalized = is_of_tokens != bool(parts.pooling)
        elif module.kind == "Dense":
            _read_dense(path, module, parts)
    return _put_together(parts, hidden_size)


def _check_place(module: Module, parts: _Parts) -> None:
    """Refuses modules that a head has no place for."""
    if module.kind in _EMPTY:
        return
    is_late = parts.is_normalized or parts.is_sparse or (module.kind == "Pooling" and parts.pooling)
    if module.kind not in ("Pooling", "SpladePooling", "Normalize", "Dense") or is_late:
        place = " behind the last step" if is_late else ""
        raise UnsupportedError(
            f"modules.json has a module{place} that no head here has",
            seen=f"{module.kind} ({module.folder})",
            remedy="Read are Transformer, Pooling, SpladePooling, Dense and Normalize, the last of "
            "these at the end.",
        )


def _read_pooling(fields: Fields, parts: _Parts) -> None:
    parts.pools_prompt = fields.flag("include_prompt", True)
    modes = fields.config.get("pooling_mode")
    if modes is None:
        asked = [kind for name, kind in _OLD_POOLINGS.items() if fields.flag(name, False)]
        parts.pooling = tuple(asked) or ("mean",)
        return
    listed = modes if isinstance(modes, list) else [modes]
    found = [_POOLINGS.get(str(one)) for one in listed]
    parts.pooling = tuple(kind for kind in found if kind is not None)
    if not parts.pooling or len(parts.pooling) != len(listed):
        raise fields.wrong("pooling_mode", f"one or several of {', '.join(_POOLINGS)}")


def _read_splade(fields: Fields, parts: _Parts, masked_lm: Sequence[NamedStep] | None) -> None:
    fields.must_be("pooling_strategy", "max")
    fields.must_be("activation_function", "relu")
    if masked_lm is None:
        raise UnsupportedError(
            "modules.json asks for predictions of masked tokens, which this family has not",
            seen="SpladePooling",
            remedy="Name a sparse encoder on BERT, DistilBERT, RoBERTa, MPNet or ModernBERT.",
        )
    parts.is_sparse = True
    parts.token_steps += masked_lm
    parts.pooling = ("max_log_relu",)


def _read_dense(path: Path, module: Module, parts: _Parts) -> None:
    fields = module.fields
    fields.must_be_off("use_residual")
    own = _OF_TEXTS if parts.pooling else _OF_TOKENS
    fields.must_be("module_input_name", own)
    fields.must_be("module_output_name", own)
    name = fields.text("activation_function", "torch.nn.modules.activation.Tanh")
    kind = name.rpartition(".")[2]
    if not name.startswith("torch.nn.") or kind not in _ACTIVATIONS:
        raise UnsupportedError(
            f"{fields.where} asks for an unknown activation",
            seen=name,
            remedy=f"Known are {', '.join(_ACTIVATIONS)} of torch.nn.",
        )
    step = HeadStep(
        size=fields.integer("out_features"),
        has_bias=fields.flag("bias", True),
        activation=_ACTIVATIONS[kind],
    )
    file = _read_file(path, module)
    steps = parts.steps if parts.pooling else parts.token_steps
    role = f"head.{len(steps)}" if parts.pooling else f"head.token.{len(steps)}"
    for part in ("weight", "bias") if step.has_bias else ("weight",):
        if f"linear.{part}" not in file:
            raise CheckpointError(
                f"{file.path} lacks tensor 'linear.{part}'",
                seen=", ".join(file) or "no tensors",
                remedy="Download the folder again.",
            )
        parts.tensors[f"{role}.{part}"] = file[f"linear.{part}"]
    parts.files.append(file)
    steps.append(NamedStep(step=step, module=""))


def _read_file(path: Path, module: Module) -> MappedTensors:
    place = path / module.folder / SINGLE_NAME
    if not is_there(place):
        found = sorted(entry.name for entry in (path / module.folder).glob("*"))
        raise CheckpointError(
            f"{path / module.folder} has no {SINGLE_NAME}",
            seen=", ".join(found) or "no files",
            remedy="Download the checkpoint in safetensors form; save it again with "
            "sentence-transformers if it holds pytorch_model.bin.",
        )
    return read_safetensors(place, path)


def _put_together(parts: _Parts, hidden_size: int) -> ModuleHead:
    kind: HeadKind = (
        "sparse" if parts.is_sparse else "embedding" if parts.pooling else "token_vectors"
    )
    named = named_head(
        kind,
        token_steps=parts.token_steps,
        pooling=parts.pooling,
        steps=parts.steps,
        is_normalized=parts.is_normalized,
    )
    for role, shape in _shapes(named, hidden_size):
        stored = parts.tensors.get(role)
        if stored is not None and stored.array.shape != shape:
            raise CheckpointError(
                f"the weight of {role} has the wrong shape",
                seen=f"{list(stored.array.shape)}, the modules ask for {list(shape)}",
                remedy="Use the modules that belong to these weights, or download them again.",
            )
    own = {role: name for role, name in named.tensors.items() if role not in parts.tensors}
    return ModuleHead(
        head=NamedHead(head=named.head, tensors=own),
        tensors=parts.tensors,
        files=tuple(parts.files),
        pools_prompt=parts.pools_prompt,
    )


def _shapes(named: NamedHead, hidden_size: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yields the shape of each tensor of the head by its role."""
    for role, shape in named.head.step_shapes(hidden_size).items():
        yield f"{role}.weight", shape
    for role, size in named.head.vector_sizes().items():
        yield role, (size,)
