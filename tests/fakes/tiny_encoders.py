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
    CamembertConfig,
    CamembertForMaskedLM,
    CamembertForSequenceClassification,
    CamembertModel,
    DistilBertConfig,
    DistilBertForMaskedLM,
    DistilBertForSequenceClassification,
    DistilBertModel,
    Gemma3TextConfig,
    Gemma3TextModel,
    ModernBertConfig,
    ModernBertForMaskedLM,
    ModernBertForSequenceClassification,
    ModernBertModel,
    MPNetConfig,
    MPNetForMaskedLM,
    MPNetForSequenceClassification,
    MPNetModel,
    NomicBertConfig,
    NomicBertModel,
    PreTrainedConfig,
    PreTrainedModel,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaForSequenceClassification,
    RobertaModel,
    XLMRobertaConfig,
    XLMRobertaForMaskedLM,
    XLMRobertaForSequenceClassification,
    XLMRobertaModel,
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
# Positions begin behind the row of the padding token.
OFFSET_SIZES: Sizes = {**SIZES, "max_position_embeddings": MAX_POSITIONS + 2, "pad_token_id": 1}

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
    "roberta": (
        RobertaConfig,
        {
            "plain": RobertaModel,
            "masked": RobertaForMaskedLM,
            "labels": RobertaForSequenceClassification,
        },
        OFFSET_SIZES,
    ),
    "xlm-roberta": (
        XLMRobertaConfig,
        {
            "plain": XLMRobertaModel,
            "masked": XLMRobertaForMaskedLM,
            "labels": XLMRobertaForSequenceClassification,
        },
        OFFSET_SIZES,
    ),
    "camembert": (
        CamembertConfig,
        {
            "plain": CamembertModel,
            "masked": CamembertForMaskedLM,
            "labels": CamembertForSequenceClassification,
        },
        OFFSET_SIZES,
    ),
    "mpnet": (
        MPNetConfig,
        {
            "plain": MPNetModel,
            "masked": MPNetForMaskedLM,
            "labels": MPNetForSequenceClassification,
        },
        OFFSET_SIZES,
    ),
    "distilbert": (
        DistilBertConfig,
        {
            "plain": DistilBertModel,
            "masked": DistilBertForMaskedLM,
            "labels": DistilBertForSequenceClassification,
        },
        {
            "vocab_size": VOCAB_SIZE,
            "dim": 64,
            "hidden_dim": 96,
            "n_layers": 3,
            "n_heads": 4,
            "max_position_embeddings": MAX_POSITIONS,
        },
    ),
    "nomic_bert": (NomicBertConfig, {"plain": NomicBertModel}, SIZES),
    "modernbert": (
        ModernBertConfig,
        {
            "plain": ModernBertModel,
            "masked": ModernBertForMaskedLM,
            "labels": ModernBertForSequenceClassification,
        },
        {
            **{name: size for name, size in SIZES.items() if name != "layer_norm_eps"},
            "norm_eps": 1e-3,
            "num_hidden_layers": 5,
            "local_attention": 10,
            **dict.fromkeys(
                ("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 0
            ),
        },
    ),
}
# EmbeddingGemma. Its family has decoders too.
GEMMA_SIZES: Sizes = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": MAX_POSITIONS,
    "sliding_window": 12,
    "query_pre_attn_scalar": 24,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "rms_norm_eps": 1e-3,
    "use_bidirectional_attention": True,
    "pad_token_id": 0,
}


_GEMMA = {"gemma3_text": (Gemma3TextConfig, {"plain": Gemma3TextModel}, GEMMA_SIZES)}


def _write(family: str, kind: str, changes: Sizes, folder: Path) -> PreTrainedModel:
    config_class, model_classes, sizes = {**CLASSES, **_GEMMA}[family]
    model = widened(model_classes[kind](config_class(**{**sizes, **changes})))
    model.save_pretrained(folder)
    return model


def variant(family: str, kind: str = "plain", **changes: object) -> Writer:
    return partial(_write, family, kind, changes)


# Each writes its folder and returns the model whose token vectors, or logits, it holds.
ENCODERS: dict[str, Writer] = {
    **{family: variant(family) for family in CLASSES},
    **{
        f"{family}-masked": variant(family, "masked")
        for family, (_, models, _) in CLASSES.items()
        if "masked" in models
    },
    "bert-relu": variant("bert", hidden_act="relu"),
    "bert-one-type": variant("bert", type_vocab_size=1),
    "roberta-padding": variant("roberta", pad_token_id=3),
    "modernbert-biases": variant(
        "modernbert", norm_bias=True, attention_bias=True, mlp_bias=True, hidden_activation="silu"
    ),
    "modernbert-kinds": variant(
        "modernbert",
        layer_types=["sliding_attention", "full_attention", *["sliding_attention"] * 3],
    ),
    "nomic_bert-theta": variant(
        "nomic_bert", rope_parameters={"rope_type": "default", "rope_theta": 50.0}
    ),
    "gemma3_text": variant("gemma3_text"),
}
CLASSIFIERS: dict[str, Writer] = {
    **{
        family: variant(family, "labels", num_labels=3)
        for family, (_, models, _) in CLASSES.items()
        if "labels" in models
    },
    "bert-one-label": variant("bert", "labels", num_labels=1),
    "modernbert-mean": variant(
        "modernbert", "labels", num_labels=2, classifier_pooling="mean", classifier_bias=True
    ),
}
