"""What a new checkpoint folder has beside its tensors: files of its source, and its own config."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from paredown.errors import CheckpointError
from paredown.models.gguf.checkpoint import is_gguf
from paredown.models.gguf.parts import read_metadata
from paredown.models.gguf.tokenizer import hugging_face_files
from paredown.models.stored_inputs import INPUTS_FIELD
from paredown.models.text.tokenizer import Tokenizer
from paredown.spec.weight import ScaleDType

# Files that are copied when the source has them; a model card speaks of the source alone.
COPIED_FILES = (
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "LICENSE",
    "LICENSE.txt",
    "NOTICE",
)
# A folder of templates beside the default one.
TEMPLATES = "additional_chat_templates"
_CONFIG_DTYPES: dict[ScaleDType, str] = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


def copy_files(source: Path, folder: Path) -> None:
    """From a folder, or what a GGUF file says in their place. Raises CheckpointError for one that
    may not be read."""
    if is_gguf(source):
        for name, text in hugging_face_files(read_metadata(source), str(source)).items():
            (folder / name).write_text(text, "utf-8")
        # What stands around a text is keys there, and a part of tokenizer.json in a folder.
        (folder / "tokenizer.json").write_text(Tokenizer.open(source).to_json(), "utf-8")
        return
    templates = sorted((source / TEMPLATES).glob("*.jinja"))
    for name in (*COPIED_FILES, *(f"{TEMPLATES}/{path.name}" for path in templates)):
        if not (source / name).is_file():
            continue
        try:
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(source / name, folder / name)
        except PermissionError as error:
            raise CheckpointError(
                f"{source / name} cannot be copied",
                seen=error.strerror,
                remedy="Check that you may read it.",
            ) from error


def float_config(config: Mapping[str, object]) -> dict[str, object]:
    """The config without what it says of codes and of the inputs they are multiplied with."""
    coded = ("quantization_config", INPUTS_FIELD)
    return {name: value for name, value in config.items() if name not in coded}


def name_dtype(config: dict[str, object], dtype: ScaleDType) -> None:
    """Puts the dtype of the floats where the config has it, or where Transformers looks today."""
    name = _CONFIG_DTYPES[dtype]
    if "torch_dtype" in config:
        config["torch_dtype"] = name
    if "dtype" in config or "torch_dtype" not in config:
        config["dtype"] = name


def write_config(folder: Path, config: Mapping[str, object]) -> None:
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
