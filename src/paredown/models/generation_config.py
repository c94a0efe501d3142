"""Reads how a checkpoint wants its answers drawn: generation_config.json of a folder, and
`general.sampling.*` of a GGUF file."""

from collections.abc import Mapping
from pathlib import Path

from paredown.models.files.json_file import read_optional_json_object
from paredown.models.gguf.checkpoint import is_gguf
from paredown.models.gguf.config import plain_value
from paredown.models.gguf.parts import read_metadata

FILE = "generation_config.json"
# Our names, and those of the two formats.
_NAMES = {
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "typical_p": "typical_p",
    "repetition_penalty": "repetition_penalty",
    "max_tokens": "max_new_tokens",
}
_GGUF_NAMES = {
    "temperature": "general.sampling.temp",
    "top_k": "general.sampling.top_k",
    "top_p": "general.sampling.top_p",
    "min_p": "general.sampling.min_p",
    "repetition_penalty": "general.sampling.penalty_repeat",
}


def read_sampling_settings(path: Path) -> dict[str, object]:
    """Returns the settings under the names of SamplingParams, whatever their values. Raises
    CheckpointError for a damaged file."""
    if is_gguf(path):
        metadata = read_metadata(path)
        known = {key: plain_value(metadata[key]) for key in _GGUF_NAMES.values() if key in metadata}
        return _renamed(known, _GGUF_NAMES)
    return _renamed(read_optional_json_object(path / FILE), _NAMES)


def _renamed(settings: Mapping[str, object], names: Mapping[str, str]) -> dict[str, object]:
    return {own: settings[name] for own, name in names.items() if name in settings}
