"""Folders of tiny encoders with a tokenizer, and modules as sentence-transformers writes them."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import processors

from fakes.small_tokenizers import byte_level
from fakes.tiny_encoders import variant

CLS, SEP = 0, 1
DENSE_SIZE = 24


def write_tokenizer(folder: Path) -> None:
    """Bytes between <s> and </s>, which stand for [CLS] and [SEP]."""
    library = byte_level()
    library.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", CLS), ("</s>", SEP)]
    )
    library.save(str(folder / "tokenizer.json"))


def embedder(folder: Path, *, dense: bool = True, **changes: object) -> Path:
    """Writes an encoder whose texts become the mean of their tokens, then pass a linear layer in a
    file of its own, and get length 1."""
    variant("bert", **changes)(folder)
    write_tokenizer(folder)
    kinds = ["Transformer", "Pooling", *(["Dense"] if dense else []), "Normalize"]
    modules = [
        {
            "idx": number,
            "name": str(number),
            "path": f"{number}_{kind}" if number else "",
            "type": f"sentence_transformers.models.{kind}",
        }
        for number, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "config_sentence_transformers.json").write_text(
        json.dumps({"prompts": {"query": "q: "}})
    )
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 48}))
    pooling = {"word_embedding_dimension": 64, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    if dense:
        _write_dense(folder / "2_Dense")
    return folder


def classifier(folder: Path, num_labels: int = 3, **changes: object) -> Path:
    """Writes an encoder with a head that gives a number for each label."""
    variant("bert", "labels", num_labels=num_labels, **changes)(folder)
    write_tokenizer(folder)
    return folder


def _write_dense(folder: Path) -> None:
    folder.mkdir()
    generator = torch.Generator().manual_seed(1)
    weight = 0.15 * torch.randn(DENSE_SIZE, 64, generator=generator)
    bias = 0.5 * torch.randn(DENSE_SIZE, generator=generator)
    save_file({"linear.weight": weight, "linear.bias": bias}, folder / "model.safetensors")
    fields = {
        "in_features": 64,
        "out_features": DENSE_SIZE,
        "bias": True,
        "activation_function": "torch.nn.modules.activation.Tanh",
    }
    (folder / "config.json").write_text(json.dumps(fields))
