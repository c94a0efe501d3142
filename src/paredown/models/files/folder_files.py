"""Writes the files of a new checkpoint folder beside its tensors: those of its source, and its own
config."""

import json
from collections.abc import Mapping
from pathlib import Path

from paredown.files.model_file import check_model_file, read_model_file
from paredown.files.new_file import make_file
from paredown.models.files.json_file import MAX_TOKENIZER_BYTES
from paredown.models.files.module_files import SETTINGS, module_files
from paredown.models.files.whole_file import unreadable
from paredown.models.gguf.checkpoint import is_gguf
from paredown.models.gguf.parts import read_metadata
from paredown.models.gguf.tokenizer import hugging_face_files
from paredown.models.paredown_section import ACTIVATIONS, with_key
from paredown.models.text.tokenizer import Tokenizer
from paredown.spec.weight import ScaleDType

# Files that are copied when the source has them. A model card is not copied: it describes the
# source.
COPIED_FILES = (
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "sentencepiece.bpe.model",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "LICENSE",
    "LICENSE.txt",
    "NOTICE",
)
# Holds the templates other than the default one.
TEMPLATES = "additional_chat_templates"
_CONFIG_DTYPES: dict[ScaleDType, str] = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


def check_files(source: Path) -> None:
    """Raises CheckpointError for a file that `copy_files` would not copy, before any work."""
    if not is_gguf(source):
        _copied_names(source)


def copy_files(source: Path, folder: Path) -> None:
    """Copies the files of a folder, or writes their equivalents from a GGUF file's metadata. Raises
    CheckpointError for a file that may not be read, for anything but a regular file, and for a link
    out of the folder: its target may not belong to the model."""
    if is_gguf(source):
        for name, text in hugging_face_files(read_metadata(source), str(source)).items():
            (folder / name).write_text(text, "utf-8")
        # In GGUF, keys hold the tokens around a text; in a folder tokenizer.json does.
        (folder / "tokenizer.json").write_text(Tokenizer.open(source).to_json(), "utf-8")
        return
    for name in _copied_names(source):
        (folder / name).parent.mkdir(exist_ok=True)
        try:
            data = read_model_file(source / name, MAX_TOKENIZER_BYTES, source)
        except OSError as error:
            raise unreadable(source / name, error) from error
        with make_file(folder / name) as copy:
            copy.write(data)


def _copied_names(source: Path) -> list[str]:
    """Returns the files to copy that `source` has. Raises CheckpointError for one that may not be
    read."""
    templates = sorted((source / TEMPLATES).glob("*.jinja"))
    names = (
        *COPIED_FILES,
        *(f"{TEMPLATES}/{path.name}" for path in templates),
        *SETTINGS,
        *module_files(source),
    )
    found = []
    for name in names:
        try:
            if check_model_file(source / name, source):
                found.append(name)
        except OSError as error:
            raise unreadable(source / name, error) from error
    return found


def float_config(config: Mapping[str, object]) -> dict[str, object]:
    """Returns the config without its fields on codes and on the formats of their inputs."""
    plain = with_key(config, ACTIVATIONS, None)
    return {name: value for name, value in plain.items() if name != "quantization_config"}


def name_dtype(config: dict[str, object], dtype: ScaleDType) -> None:
    """Writes the floats' dtype to the field that the config uses, or to Transformers' current
    field."""
    name = _CONFIG_DTYPES[dtype]
    if "torch_dtype" in config:
        config["torch_dtype"] = name
    if "dtype" in config or "torch_dtype" not in config:
        config["dtype"] = name


def write_config(folder: Path, config: Mapping[str, object]) -> None:
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
