"""Extracts the text model of a checkpoint that also sees images: its config and its tensors as in a
text-only checkpoint. The vision part is left out with a note."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from paredown.models.families.fields import Fields
from paredown.models.files.shards import FolderTensors

TEXT_CONFIG = "text_config"
# Transformers has used both orders of the words.
_TEXT = re.compile(r"(?:language_model\.model|model\.language_model|language_model(?=\.lm_head))\.")
_OTHERS = re.compile(r"(?:model\.)?(?:vision_tower|multi_modal_projector|vision_model)\..*")
_NOTE = "images are not seen here: the text model runs alone"


@dataclass(frozen=True, kw_only=True)
class Whole:
    """How a `model_type` holds its text model: the text's `model_type` where the config does not
    say, and whether the output layer is tied where nothing says so (None: as in the text model)."""

    text_type: str
    is_tied: bool | None = None


WHOLES: Mapping[str, Whole] = {
    "gemma3": Whole(text_type="gemma3_text", is_tied=True),
    "mistral3": Whole(text_type="mistral"),
}
# The Transformers class that loads the written text model.
_CLASSES: Mapping[str, str] = {
    "gemma3_text": "Gemma3ForCausalLM",
    "ministral3": "Ministral3ForCausalLM",
    "mistral": "MistralForCausalLM",
}
# Fields outside the text's own config that also hold for it.
_SHARED = ("quantization_config", "dtype", "torch_dtype", "bos_token_id", "eos_token_id",
           "pad_token_id", "transformers_version")  # fmt: skip


def text_config(config: dict[str, object]) -> tuple[dict[str, object], tuple[str, ...]]:
    """Returns the text model's config, with a note where it is a part of this one. Raises
    CheckpointError if that part is no object."""
    whole = WHOLES.get(str(config.get("model_type")))
    if whole is None:
        return config, ()
    own = config.get(TEXT_CONFIG, {})
    if not isinstance(own, dict):
        raise Fields(config).wrong(TEXT_CONFIG, "an object")
    found = {name: config[name] for name in _SHARED if config.get(name) is not None}
    found |= {"model_type": whole.text_type, **own}
    model_type = found["model_type"]
    if isinstance(model_type, str) and model_type in _CLASSES:
        found["architectures"] = [_CLASSES[model_type]]
    is_tied = config.get("tie_word_embeddings", own.get("tie_word_embeddings", whole.is_tied))
    if is_tied is not None:
        found["tie_word_embeddings"] = is_tied
    return found, (_NOTE,)


def text_tensors(tensors: FolderTensors, config: Mapping[str, object]) -> FolderTensors:
    """Returns the text model's tensors under the names of a text-only checkpoint. `config` is that
    of the whole folder."""
    if config.get("model_type") not in WHOLES:
        return tensors
    files = []
    for file in tensors.files:
        places = {
            _own_name(name): place
            for name, place in file.places.items()
            if not _OTHERS.fullmatch(name)
        }
        files.append(file.with_places(places))
    return FolderTensors(files)


def _own_name(name: str) -> str:
    found = _TEXT.match(name)
    if found is None:
        return name
    rest = name[found.end() :]
    return rest if rest.startswith("lm_head.") else f"model.{rest}"
