"""Finds the head of a checkpoint's folder and the settings for its texts."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from paredown.errors import UnsupportedError
from paredown.formats.tensor import StoredTensor
from paredown.models.encoder_settings import AnswerScore, EncoderSettings, ScoreActivation
from paredown.models.families.encoder_heads import classes
from paredown.models.families.family import Family
from paredown.models.families.fields import Fields
from paredown.models.families.named_head import NamedHead, NamedStep, named_head
from paredown.models.files.safetensors_file import MappedTensors
from paredown.models.files.shards import FolderTensors
from paredown.models.heads.late_interaction import (
    is_stanford,
    read_late_interaction,
    read_stanford,
)
from paredown.models.heads.module_head import read_module_head
from paredown.models.heads.module_list import Module, read_modules
from paredown.models.heads.text_settings import TextFiles, read_text_settings
from paredown.spec.head import HeadStep
from paredown.spec.model import ModelSpec

_CLASSIFIER = "ForSequenceClassification"
# Classes with heads of other kinds.
_UNKNOWN = (
    "ForTokenClassification",
    "ForQuestionAnswering",
    "ForMultipleChoice",
    "ForNextSentencePrediction",
)
_ACTIVATIONS: Mapping[str, ScoreActivation] = {
    "Identity": "identity",
    "Sigmoid": "sigmoid",
    "Tanh": "tanh",
    "Softmax": "softmax",
}
# The module of a decoder's scores in Transformers.
_SCORE = "score"
# The linear layer of ColBERT's own code.
_PROJECTION = "linear"


@dataclass(frozen=True, kw_only=True)
class FoundEncoder:
    """`spec`      the model with its head, and without an output layer where the files have none
    `head`       what the main files call the head's tensors, by role
    `tensors`    the tensors of the head that lie in files of their own, by role
    `settings`   None for a model that only generates
    """

    spec: ModelSpec
    head: NamedHead | None = None
    tensors: Mapping[str, StoredTensor] = field(default_factory=dict)
    files: tuple[MappedTensors, ...] = ()
    settings: EncoderSettings | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _Folder:
    """A folder as it was opened, for those who look for a head in it."""

    path: Path
    fields: Fields
    family: Family
    spec: ModelSpec
    tensors: FolderTensors
    modules: tuple[Module, ...]
    texts: TextFiles

    @property
    def architecture(self) -> str:
        named = self.fields.config.get("architectures")
        return str(named[0]) if isinstance(named, list) and named else ""


def find_encoder(
    path: Path,
    config: Mapping[str, object],
    family: Family,
    spec: ModelSpec,
    tensors: FolderTensors,
) -> FoundEncoder:
    """Returns the head of a folder: a classifier where config.json names its class, else what
    modules.json or ColBERT's files describe. An encoder without any gets the mean of its token
    vectors, with a note. Raises CheckpointError and UnsupportedError."""
    folder = _Folder(
        path=path,
        fields=Fields(config),
        family=family,
        spec=spec,
        tensors=tensors,
        modules=read_modules(path),
        texts=TextFiles.of_folder(path),
    )
    if folder.architecture.endswith(_CLASSIFIER):
        return _classifier(folder)
    if folder.modules:
        return _from_modules(folder)
    if is_stanford(path, config):
        return _from_stanford(folder)
    if spec.generates:
        return FoundEncoder(spec=spec)
    if folder.architecture.endswith(_UNKNOWN):
        raise UnsupportedError(
            "config.json names a class whose head is not run here",
            seen=folder.architecture,
            remedy="Classes for sequence classification are run, and encoders with the modules of "
            "sentence-transformers.",
        )
    named = named_head("embedding", pooling=("mean",))
    return FoundEncoder(
        spec=replace(spec, head=named.head),
        head=named,
        settings=read_text_settings(folder.texts, folder.fields, spec, "cosine"),
        notes=("no modules.json: a text's vector is the mean of its tokens' vectors",),
    )


def _classifier(folder: _Folder) -> FoundEncoder:
    spec, family = folder.spec, folder.family
    labels = classes(folder.fields)
    if family.classifier is not None:
        named = family.classifier(folder.fields, spec)
    elif spec.generates and f"{_SCORE}.weight" in folder.tensors:
        step = HeadStep(size=len(labels), has_bias=False)
        named = named_head(
            "classification", pooling=("last",), steps=(NamedStep(step=step, module=_SCORE),)
        )
    else:
        raise UnsupportedError(
            "classifiers of this family are not run",
            seen=f"{folder.architecture}, model_type {family.model_type}",
            remedy="Choose a classifier of another family.",
        )
    settings = read_text_settings(folder.texts, folder.fields, spec, "cosine")
    return FoundEncoder(
        spec=replace(spec, output=None, head=named.head),
        head=named,
        settings=replace(settings, labels=labels, activation=_activation(folder, len(labels))),
    )


def _activation(folder: _Folder, num_labels: int) -> ScoreActivation:
    """Returns what a classifier's numbers pass: what its files name, else a sigmoid where there is
    one number, as in sentence-transformers, or where several labels may hold, as in
    Transformers."""
    config = folder.fields.config
    own = config.get("sentence_transformers")
    names = (
        folder.texts.shared.config.get("activation_fn"),
        own.get("activation_fn") if isinstance(own, Mapping) else None,
        config.get("sbert_ce_default_activation_function"),
    )
    name = next((one for one in names if one is not None), None)
    if name is None:
        are_apart = config.get("problem_type") == "multi_label_classification"
        return "sigmoid" if num_labels == 1 or are_apart else "identity"
    kind = str(name).rpartition(".")[2]
    if kind not in _ACTIVATIONS:
        raise UnsupportedError(
            f"{folder.path} asks for an unknown activation of its scores",
            seen=name,
            remedy=f"Known are {', '.join(_ACTIVATIONS)} of torch.nn.",
        )
    return _ACTIVATIONS[kind]


def _from_modules(folder: _Folder) -> FoundEncoder:
    spec, family = folder.spec, folder.family
    scores = [module.fields for module in folder.modules if module.kind == "LogitScore"]
    if scores:
        return FoundEncoder(spec=spec, settings=_answer_settings(folder, scores[0]))
    masked_lm = None
    if family.masked_lm is not None:
        masked_lm = family.masked_lm(folder.fields, spec)
    found = read_module_head(folder.path, folder.modules, spec.hidden_size, masked_lm)
    head = found.head.head
    settings = read_text_settings(
        folder.texts, folder.fields, spec, "dot" if head.kind == "sparse" else "cosine"
    )
    late = None
    if head.kind == "token_vectors":
        late = read_late_interaction(folder.texts.shared, folder.texts.transformer, folder.modules)
        # PyLate's list ends with the linear layer, behind which each vector is normalized.
        if not any(module.kind == "MultiVectorMask" for module in folder.modules):
            head = replace(head, is_normalized=True)
    output = spec.output
    if output is not None and not output.is_tied and "lm_head.weight" not in folder.tensors:
        output = None
    return FoundEncoder(
        spec=replace(spec, head=head, output=output),
        head=NamedHead(head=head, tensors=found.head.tensors),
        tensors=found.tensors,
        files=found.files,
        settings=replace(settings, pools_prompt=found.pools_prompt, late_interaction=late),
    )


def _answer_settings(folder: _Folder, fields: Fields) -> EncoderSettings:
    settings = read_text_settings(folder.texts, folder.fields, folder.spec, "cosine")
    score = AnswerScore(
        true_token_id=fields.integer("true_token_id", minimum=0),
        false_token_id=_optional_id(fields, "false_token_id"),
    )
    return replace(settings, answer_score=score, activation=_activation(folder, 1))


def _optional_id(fields: Fields, name: str) -> int | None:
    return None if fields.config.get(name) is None else fields.integer(name, minimum=0)


def _from_stanford(folder: _Folder) -> FoundEncoder:
    size = folder.fields.integer("dim", 128)
    if f"{_PROJECTION}.weight" in folder.tensors:
        size = folder.tensors.place(f"{_PROJECTION}.weight").shape[0]
    step = HeadStep(size=size, has_bias=False)
    named = named_head(
        "token_vectors",
        token_steps=(NamedStep(step=step, module=_PROJECTION),),
        is_normalized=True,
    )
    settings = read_text_settings(folder.texts, folder.fields, folder.spec, "dot")
    return FoundEncoder(
        spec=replace(folder.spec, head=named.head),
        head=named,
        settings=replace(settings, late_interaction=read_stanford(folder.path)),
    )
