"""Parts of heads that families of encoders share: the labels of a classifier, and the steps of a
head that predicts masked tokens."""

from collections.abc import Mapping, Sequence

from paredown.models.families.fields import Fields
from paredown.models.families.named_head import NamedHead, NamedStep, named_head
from paredown.spec.head import HeadActivation, HeadStep
from paredown.spec.model import ModelSpec
from paredown.spec.norm import Norm

MAX_LABELS = 1_000_000


def classes(fields: Fields) -> tuple[str, ...]:
    """Returns the names of a classifier's labels in order: those of `id2label`, or two as in
    Transformers. Raises CheckpointError for numbers that do not count from 0."""
    names = fields.config.get("id2label")
    if names is None:
        count = fields.integer("num_labels", 2)
        if count > MAX_LABELS:
            raise fields.wrong("num_labels", f"an integer from 1 to {MAX_LABELS}")
        return tuple(f"LABEL_{index}" for index in range(count))
    if not isinstance(names, Mapping):
        raise fields.wrong("id2label", "an object of labels by their numbers")
    fields.pass_over("id2label")
    by_number = {str(number): str(name) for number, name in names.items()}
    found = tuple(by_number.get(str(index)) for index in range(len(by_number)))
    labels = tuple(name for name in found if name is not None)
    if not labels or len(labels) != len(by_number):
        raise fields.wrong("id2label", "labels by their numbers from 0 on")
    return labels


def masked_lm_steps(
    fields: Fields,
    spec: ModelSpec,
    *,
    activation: HeadActivation,
    dense: str,
    norm: str,
    decoder: str,
    bias: str,
) -> tuple[NamedStep, NamedStep]:
    """Returns the steps of a head that predicts masked tokens: a linear layer with activation and
    norm, then the embedding's table, or one of its own, with a bias. These are the names of the
    modules; `bias` that of the last bias."""
    is_tied = fields.flag("tie_word_embeddings", True)
    own = spec.embedding.norm or Norm(kind="layer", eps=spec.last_norm.eps)
    transform = HeadStep(size=spec.hidden_size, activation=activation, norm=own)
    return (
        NamedStep(step=transform, module=dense, norm=norm),
        NamedStep(step=HeadStep(size=spec.vocab_size, is_tied=is_tied), module=decoder, bias=bias),
    )


def two_layer_classifier(
    fields: Fields,
    spec: ModelSpec,
    *,
    dense: str,
    activation: HeadActivation,
    classifier: str,
) -> NamedHead:
    """Returns the head of most classifiers: two linear layers on the first token's vector, with an
    activation between them. These are the names of the modules."""
    first = HeadStep(size=spec.hidden_size, activation=activation)
    last = HeadStep(size=len(classes(fields)))
    steps = (NamedStep(step=first, module=dense), NamedStep(step=last, module=classifier))
    return named_head("classification", pooling=("cls",), steps=steps)


def lm_head_steps(fields: Fields, spec: ModelSpec) -> Sequence[NamedStep]:
    """Returns the steps of a head that predicts masked tokens as RoBERTa and MPNet have it: exact
    GELU, whatever the layers have."""
    return masked_lm_steps(
        fields,
        spec,
        activation="gelu",
        dense="lm_head.dense",
        norm="lm_head.layer_norm",
        decoder="lm_head.decoder",
        bias="lm_head.bias",
    )


def out_proj_classifier(fields: Fields, spec: ModelSpec) -> NamedHead:
    """Returns the head of RoBERTa's and MPNet's classifiers."""
    return two_layer_classifier(
        fields,
        spec,
        dense="classifier.dense",
        activation="tanh",
        classifier="classifier.out_proj",
    )
