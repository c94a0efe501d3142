"""Finds the head of a GGUF file: `pooling_type`, the linear layers of EmbeddingGemma, a classifier.

llama.cpp divides vectors of texts by their lengths unless it is asked not to, and no key says
otherwise; so does this head.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from paredown.errors import UnsupportedError
from paredown.models.encoder_settings import EncoderSettings
from paredown.models.families.family import Family
from paredown.models.families.fields import Fields
from paredown.models.families.named_head import NamedHead, NamedStep, named_head
from paredown.models.gguf.header import Value
from paredown.models.gguf.names import HEADS
from paredown.spec.head import HeadStep, PoolingKind
from paredown.spec.model import ModelSpec

POOLING = "pooling_type"
LABELS = "classifier.output_labels"
# Values of `pooling_type`; 0 is none, and RANK a classifier on the first token.
POOLINGS: Mapping[int, PoolingKind] = {1: "mean", 2: "cls", 3: "last"}
RANK = 4


@dataclass(frozen=True, kw_only=True)
class GGUFHead:
    """The model with its head, the names of the head's tensors by role, and the settings for its
    texts; None for a model that only generates."""

    spec: ModelSpec
    tensors: Mapping[str, str]
    settings: EncoderSettings | None
    notes: tuple[str, ...] = ()


def find_gguf_head(
    metadata: Mapping[str, Value],
    shapes: Mapping[str, tuple[int, ...]],
    config: Mapping[str, object],
    family: Family,
    spec: ModelSpec,
    where: str,
) -> GGUFHead:
    """Reads the head from the metadata and the shapes of the tensors. Raises CheckpointError for a
    bad value, and UnsupportedError for a head that is not run."""
    assert family.gguf is not None
    arch = family.gguf.architecture
    own = {key: value for key, value in metadata.items() if key.startswith(f"{arch}.")}
    fields = Fields({key: _plain(value) for key, value in own.items()}, where)
    kind = fields.integer(f"{arch}.{POOLING}", 0, minimum=0)
    if kind == RANK:
        return _ranker(fields, arch, shapes, config, family, spec)
    if kind == 0 and spec.generates:
        return GGUFHead(spec=spec, tensors={}, settings=None)
    if kind not in (0, *POOLINGS):
        raise fields.wrong(
            f"{arch}.{POOLING}", f"one of 0, {', '.join(map(str, POOLINGS))}, {RANK}"
        )
    steps = _steps(shapes)
    named = named_head(
        "embedding", pooling=(POOLINGS.get(kind, "mean"),), steps=steps, is_normalized=True
    )
    unsaid = f"no {arch}.{POOLING}: a text's vector is the mean of its tokens' vectors"
    return GGUFHead(
        spec=replace(spec, head=named.head),
        tensors=named.tensors,
        settings=EncoderSettings(max_tokens=spec.max_positions),
        notes=() if kind else (unsaid,),
    )


def _steps(shapes: Mapping[str, tuple[int, ...]]) -> list[NamedStep]:
    """Returns the linear layers on the text's vector."""
    names = [name for name in HEADS["embedding"] if f"{name}.weight" in shapes]
    return [
        NamedStep(step=HeadStep(size=shapes[f"{name}.weight"][0], has_bias=False), module=name)
        for name in names
    ]


def _ranker(
    fields: Fields,
    arch: str,
    shapes: Mapping[str, tuple[int, ...]],
    config: Mapping[str, object],
    family: Family,
    spec: ModelSpec,
) -> GGUFHead:
    if family.classifier is None:
        raise UnsupportedError(
            f"{fields.where} is a classifier of an architecture that classifies nothing here",
            seen=f"{arch}, {arch}.{POOLING} {RANK}",
            remedy="Use the model's Hugging Face folder.",
        )
    labels = fields.config.get(f"{arch}.{LABELS}")
    names = [str(one) for one in labels] if isinstance(labels, list) else []
    size = shapes.get("cls.output.weight", (1,))[0]
    names = names if len(names) == size else [f"LABEL_{index}" for index in range(size)]
    with_labels = Fields({**config, "id2label": {str(i): name for i, name in enumerate(names)}})
    named: NamedHead = family.classifier(with_labels, spec)
    settings = EncoderSettings(
        max_tokens=spec.max_positions,
        labels=tuple(names),
        activation="sigmoid" if size == 1 else "identity",
    )
    return GGUFHead(
        spec=replace(spec, output=None, head=named.head), tensors=named.tensors, settings=settings
    )


def _plain(value: Value) -> object:
    return value.item() if hasattr(value, "item") and not hasattr(value, "__len__") else value
