"""The real models as Hugging Face folders in bf16, made of the GGUF files by Transformers."""

import gc
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.real.models import FOLDER_NAME


def make_folders(files: Mapping[str, Path]) -> dict[str, Path]:
    """The folder beside each file; what is not there yet is made, whole or not at all."""
    found = {}
    for name, path in files.items():
        folder = path.parent / FOLDER_NAME
        if not folder.exists():
            _make(path, folder)
        found[name] = folder
    return found


def _make(path: Path, folder: Path) -> None:
    import torch  # takes seconds, and is there for this alone
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    partial = folder.with_suffix(".part")
    shutil.rmtree(partial, ignore_errors=True)
    model: Any = AutoModelForCausalLM.from_pretrained(
        path.parent,
        gguf_file=path.name,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
    )
    model.to(torch.bfloat16).save_pretrained(partial)
    AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name).save_pretrained(partial)
    del model
    gc.collect()
    partial.replace(folder)
