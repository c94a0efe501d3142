"""The Python readers to fuzz, each with the use of an accepted file."""

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt

from paredown.formats.stored.table import read_quantization
from paredown.kernels.packed_file import Blob, PackedFile, PackedFileError
from paredown.models.config import read_config
from paredown.models.files.json_file import read_json_object
from paredown.models.files.safetensors_file import read_safetensors
from paredown.models.files.shards import read_folder_tensors
from paredown.models.gguf.checkpoint import open_gguf
from paredown.models.gguf.parts import read_metadata
from paredown.models.gguf.tokenizer import hugging_face_files
from paredown.models.text.chat_templates import ChatTemplates
from paredown.models.text.tokenizer import Tokenizer
from paredown.models.text_part import text_config
from tools.fuzz import seeds
from tools.fuzz.target import Target

_MESSAGES = [{"role": "user", "content": "a question"}, {"role": "assistant", "content": "ab c"}]
# The largest blob that a forged entry may ask for.
_MAX_BLOB_BYTES = 1 << 20
_SOUND_BLOBS: list[Blob] = []


def _read_whole(array: npt.NDArray[np.generic]) -> None:
    # A file may hold infinities of both signs, whose sum is no number.
    with np.errstate(invalid="ignore", over="ignore"):
        array.sum()


def _read_safetensors(path: Path) -> None:
    tensors = read_safetensors(path)
    for tensor in tensors.values():
        _read_whole(tensor.array)


def _read_index(path: Path) -> None:
    shard = path.parent / seeds.SHARD
    if not shard.exists():
        shard.write_bytes(seeds.shard())
    for tensor in read_folder_tensors(path.parent).values():
        _read_whole(tensor.array)


def _read_gguf(path: Path) -> None:
    model = open_gguf(path)
    for tensor in model.tensors.values():
        _read_whole(tensor.array)


def _read_gguf_vocabulary(path: Path) -> None:
    hugging_face_files(read_metadata(path), str(path))


def _read_config(path: Path) -> None:
    whole = read_json_object(path)
    config, _ = text_config(whole)
    spec, _ = read_config(config)
    for layer in spec.layer_counts:
        rotary = layer.attention.rotary
        if rotary is not None and layer.attention.head_dim <= 4096:
            rotary.inverse_frequencies(layer.attention.head_dim)
    section = config.get("quantization_config")
    if isinstance(section, dict):
        found = read_quantization(section, ["model.layers.0.self_attn.q_proj.qweight"])
        found.form_for_embedding("model.embed_tokens")


def _read_packed(path: Path) -> None:
    """Reads JSON entries in an otherwise valid packed file."""
    _borrow(_forged_file(path))


def _read_packed_head(path: Path) -> None:
    sealed = path.with_name("sealed.packed")
    sealed.write_bytes(seeds.sealed_file(path.read_bytes()))
    _borrow(sealed)


def _borrow(path: Path) -> None:
    file = PackedFile(path, seeds.PACKED_KEY, 1)
    file.verify()
    model = seeds.packed_model()
    model.borrow(file.blobs())
    model.step([1, 2], [0], [2], [1], [[0]], [0])


def _forged_file(path: Path) -> Path:
    """Writes a file with the blobs that the entries of `path` ask for. Raises ValueError for
    entries that no file could have."""
    try:
        entries = json.loads(path.read_bytes())["entries"]
        wanted = [(dict(entry["fields"]), int(entry["num_bytes"])) for entry in entries]
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise ValueError("no entries") from error
    if not _SOUND_BLOBS:
        _SOUND_BLOBS.extend(seeds.packed_blobs())
    blobs = []
    for index, (fields, num_bytes) in enumerate(wanted[:64]):
        if not 0 <= num_bytes <= _MAX_BLOB_BYTES:
            raise ValueError("a blob of an impossible size")
        sound = _SOUND_BLOBS[index % len(_SOUND_BLOBS)].data
        blobs.append(Blob(fields=fields, data=np.resize(sound, num_bytes)))
    forged = path.with_name("forged.packed")
    forged.write_bytes(seeds.packed_bytes(blobs))
    return forged


def _read_tokenizer(path: Path) -> None:
    tokenizer = Tokenizer.open(path.parent)
    tokenizer.decode(tokenizer.encode("ab c\u00e4 \U0001f600"))
    tokenizer.decode([0, 1, 2, 5])


def _read_template(path: Path) -> None:
    text = path.read_bytes().decode(errors="surrogateescape")
    templates = ChatTemplates(text, "a file")
    templates.render(_MESSAGES, tools=None, special_tokens={"bos_token": "<s>"})


TARGETS = {
    target.name: target
    for target in (
        Target(
            name="safetensors",
            run=_read_safetensors,
            seeds=seeds.safetensors,
            file_name="model.safetensors",
        ),
        Target(
            name="index",
            run=_read_index,
            seeds=seeds.indices,
            file_name="model.safetensors.index.json",
            is_json=True,
        ),
        Target(name="gguf", run=_read_gguf, seeds=seeds.ggufs, file_name="model.gguf"),
        Target(
            name="gguf_vocabulary",
            run=_read_gguf_vocabulary,
            seeds=seeds.ggufs,
            file_name="model.gguf",
        ),
        Target(
            name="config",
            run=_read_config,
            seeds=seeds.configs,
            file_name="config.json",
            is_json=True,
        ),
        Target(
            name="packed_entries",
            run=_read_packed,
            seeds=seeds.packed_files,
            file_name="entries.json",
            is_json=True,
            refusals=(PackedFileError, ValueError),
        ),
        Target(
            name="packed_head",
            run=_read_packed_head,
            seeds=seeds.packed_heads,
            file_name="head",
            refusals=(PackedFileError, ValueError),
        ),
        Target(
            name="tokenizer",
            run=_read_tokenizer,
            seeds=seeds.tokenizers,
            file_name="tokenizer.json",
            is_json=True,
            is_default=False,
        ),
        Target(
            name="template",
            run=_read_template,
            seeds=seeds.templates,
            file_name="chat_template.jinja",
            is_default=False,
        ),
    )
}
