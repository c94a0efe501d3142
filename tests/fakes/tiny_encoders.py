"""Tiny random encoders written by Transformers itself, one for each feature.

Weights are wide and norms far from 1, so that every missing term shows: at the default spread of
0.02 most faults would hide.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertModel,
    PreTrainedConfig,
    PreTrainedModel,
)

VOCAB_SIZE = 300
MAX_POSITIONS = 64
MATRIX_DEVIATION = 0.15
NORM_DEVIATION = 0.5

Sizes = dict[str, object]

SIZES: Sizes = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": MAX_POSITIONS,
    # Large enough to show.
    "layer_norm_eps": 1e-3,
}

Writer = Callable[[Path], PreTrainedModel]


def widened(model: PreTrainedModel, seed: int = 0) -> PreTrainedModel:
    """Returns the model in eval mode with new weights."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim > 1:
                parameter.copy_(MATRIX_DEVIATION * noise)
            else:
                centre = 1.0 if name.endswith("weight") else 0.0
                parameter.copy_(centre + NORM_DEVIATION * noise)
    return model.eval()


# By family: its config, and its classes without a head, with one that predicts masked tokens, and
# with one that classifies.
CLASSES: dict[str, tuple[type[PreTrainedConfig], dict[str, type[PreTrainedModel]], Sizes]] = {
    "bert": (
        BertConfig,
        {"plain": BertModel, "masked": BertForMaskedLM, "labels": BertForSequenceClassification},
        SIZES,
    ),
}


def _write(family: str, kind: str, changes: Sizes, folder: Path) -> PreTrainedModel:
    config_class, model_classes, sizes = CLASSES[family]
    model = widened(model_classes[kind](config_class(**{**sizes, **changes})))
    model.save_pretrained(folder)
    return model


def variant(family: str, kind: str = "plain", **changes: object) -> Writer:
    return partial(_write, family, kind, changes)


# Each writes its folder and returns the model whose token vectors, or logits, it holds.
ENCODERS: dict[str, Writer] = {
    **{family: variant(family) for family in CLASSES},
    **{f"{family}-masked": variant(family, "masked") for family in CLASSES},
    "bert-relu": variant("bert", hidden_act="relu"),
    "bert-one-type": variant("bert", type_vocab_size=1),
}
CLASSIFIERS: dict[str, Writer] = {
    family: variant(family, "labels", num_labels=3) for family in CLASSES
}
