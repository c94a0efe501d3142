"""Makes a classifier of a BERT encoder: its own pooler, and a new layer for the labels."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.txt",
)


def write_classifier(encoder: Path, folder: Path, labels: Sequence[str], seed: int) -> None:
    """Writes `folder` as Transformers writes a BertForSequenceClassification. The new weights are
    drawn with the encoder's `initializer_range`."""
    config = json.loads((encoder / "config.json").read_text())
    assert config["model_type"] == "bert", config["model_type"]
    tensors = load_file(encoder / "model.safetensors")
    named = {
        f"bert.{name}": values for name, values in tensors.items() if "position_ids" not in name
    }
    shape = (len(labels), config["hidden_size"])
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    named["classifier.weight"] = drawn * config["initializer_range"]
    named["classifier.bias"] = torch.zeros(len(labels))
    config |= {
        "architectures": ["BertForSequenceClassification"],
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
        "num_labels": len(labels),
        "problem_type": "single_label_classification",
    }
    folder.mkdir(parents=True)
    save_file(named, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    for name in _TOKENIZER_FILES:
        if (encoder / name).is_file():
            shutil.copy(encoder / name, folder / name)
