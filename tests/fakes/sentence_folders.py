"""Folders as sentence-transformers writes them, around a tiny encoder."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from fakes.tiny_encoders import MATRIX_DEVIATION

PACKAGE = "sentence_transformers.models"
# The class of a module, its config, and its tensors.
ModuleFiles = tuple[str, dict[str, object], dict[str, torch.Tensor]]


def write_json(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def add_modules(folder: Path, modules: Sequence[ModuleFiles], package: str = PACKAGE) -> None:
    """Writes modules.json and a folder for each module behind the transformer."""
    entries = [{"idx": 0, "name": "0", "path": "", "type": f"{package}.Transformer"}]
    for number, (kind, config, tensors) in enumerate(modules, 1):
        place = f"{number}_{kind.rpartition('.')[2]}"
        name = kind if "." in kind else f"{package}.{kind}"
        entries.append({"idx": number, "name": str(number), "path": place, "type": name})
        write_json(folder / place / "config.json", config)
        if tensors:
            save_file(tensors, folder / place / "model.safetensors")
    write_json(folder / "modules.json", entries)


def pooling(kind: str | list[str]) -> ModuleFiles:
    return "Pooling", {"embedding_dimension": 64, "pooling_mode": kind}, {}


def old_pooling(**modes: bool) -> ModuleFiles:
    names = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "lasttoken")
    config = {f"pooling_mode_{name}": modes.get(name, False) for name in names}
    return "Pooling", {"word_embedding_dimension": 64, **config}, {}


def dense(
    num_rows: int, num_columns: int, *, bias: bool, activation: str, **config: object
) -> ModuleFiles:
    """A linear layer with weights that its sizes decide."""
    noise = np.random.default_rng(num_rows).normal(size=(num_rows, num_columns + 1))
    noise = (MATRIX_DEVIATION * noise).astype(np.float32)
    tensors = {"linear.weight": torch.from_numpy(noise[:, :-1].copy())}
    if bias:
        tensors["linear.bias"] = torch.from_numpy(noise[:, -1].copy())
    fields: dict[str, object] = {
        "in_features": num_columns,
        "out_features": num_rows,
        "bias": bias,
        "activation_function": activation,
        **config,
    }
    return "Dense", fields, tensors


NORMALIZE: ModuleFiles = ("Normalize", {}, {})
