"""The text model of a checkpoint that also sees images: its own config and its own tensors, as in a
checkpoint of text alone. What sees the images is left out, with a note."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from paredown.models.families.fields import Fields
from paredown.models.files.shards import FolderTensors

TEXT_CONFIG = "text_config"
# Transformers has had both orders of the words.
_TEXT = re.compile(r"(?:language_model\.model|model\.language_model|language_model(?=\.lm_head))\.")
_OTHERS = re.compile(r"(?:model\.)?(?:vision_tower|multi_modal_projector|vision_model)\..*")
_NOTE = "images are not seen here: the text model runs alone"


@dataclass(frozen=True, kw_only=True)
class Whole:
    """How a `model_type` holds its text: the `model_type` of that where its config does not say,
    and whether its output layer is tied where nothing does (None: as the text model's own)."""

    text_type: str
    is_tied: bool | None = None


WHOLES: Mapping[str, Whole] = {
    "gemma3": Whole(text_type="gemma3_text", is_tied=True),
    "mistral3": Whole(text_type="mistral"),
}
# The class in Transformers that loads what is written of the text model.
_CLASSES: Mapping[str, str] = {
    "gemma3_text": "Gemma3ForCausalLM",
    "ministral3": "Ministral3ForCausalLM",
    "mistral": "MistralForCausalLM",
}
# Fields that stand beside the text's own and hold for it too.
_SHARED = ("quantization_config", "dtype", "torch_dtype", "bos_token_id", "eos_token_id",
           "pad_token_id", "transformers_version")  # fmt: skip


def text_config(config: dict[str, object]) -> tuple[dict[str, object], tuple[str, ...]]:
    """The config of the text model, and a note where that is a part of this one. Raises
    CheckpointError for a part that is no object."""
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
    """The tensors of the text model under the names that they have in one of text alone. `config`
    is that of the whole folder."""
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
