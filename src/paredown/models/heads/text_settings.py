"""Reads what the files of an encoder say about its texts: lengths, prompts, similarity, Matryoshka
sizes."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from paredown.models.encoder_settings import EncoderSettings, Similarity
from paredown.models.families.fields import MAX_INTEGER, Fields
from paredown.models.files.json_file import read_optional_json_object
from paredown.spec.model import ModelSpec

SHARED = "config_sentence_transformers.json"
TRANSFORMER = "sentence_bert_config.json"
TOKENIZER = "tokenizer_config.json"
_SIMILARITIES: Mapping[str, Similarity] = {
    "cosine": "cosine",
    "cos_sim": "cosine",
    "dot": "dot",
    "dot_score": "dot",
    "euclidean": "euclidean",
    "manhattan": "manhattan",
    # The sum of maxima is over dot products.
    "maxsim": "dot",
    "xtr": "dot",
}


@dataclass(frozen=True, kw_only=True)
class TextFiles:
    """The fields of the files that say how texts are read; none for a file that is not there."""

    shared: Fields
    transformer: Fields
    tokenizer: Fields

    @classmethod
    def of_folder(cls, path: Path) -> "TextFiles":
        """Reads the files of a checkpoint's folder. Raises CheckpointError."""
        shared, transformer, tokenizer = (
            Fields(read_optional_json_object(path / name), f"{path / name}")
            for name in (SHARED, TRANSFORMER, TOKENIZER)
        )
        return cls(shared=shared, transformer=transformer, tokenizer=tokenizer)


def read_text_settings(
    files: TextFiles, config: Fields, spec: ModelSpec, similarity: Similarity
) -> EncoderSettings:
    """Returns the settings of the files. `config` are the fields of config.json; `similarity` is
    that of models whose files name none."""
    shared = files.shared
    return EncoderSettings(
        max_tokens=_max_tokens(files, spec),
        lowercases=files.transformer.flag("do_lower_case", False),
        prompts=_prompts(shared),
        default_prompt=_default_prompt(shared),
        similarity=_similarity(shared, similarity),
        dimensions=_dimensions(config),
        cut_size=shared.optional_integer("truncate_dim"),
    )


def _max_tokens(files: TextFiles, spec: ModelSpec) -> int:
    """Returns the smallest length that a file names, at most the model's positions. Where none is
    meant, tokenizers write 1e30."""
    asked = files.transformer.config.get("max_seq_length")
    owner = files.transformer
    name = "max_seq_length"
    if asked is None:
        owner, name = files.tokenizer, "model_max_length"
        asked = owner.config.get(name)
    if asked is None or (isinstance(asked, int | float) and asked > MAX_INTEGER):
        return spec.max_positions
    return min(spec.max_positions, owner.integer(name))


def _prompts(shared: Fields) -> dict[str, str]:
    prompts = shared.config.get("prompts")
    if prompts is None:
        return {}
    if not isinstance(prompts, Mapping):
        raise shared.wrong("prompts", "texts by their names")
    found = {}
    for name, text in prompts.items():
        if text is not None and not isinstance(text, str):
            raise shared.wrong("prompts", "texts by their names")
        found[str(name)] = text or ""
    return found


def _default_prompt(shared: Fields) -> str | None:
    name = shared.config.get("default_prompt_name")
    if name is None:
        return None
    if name not in _prompts(shared):
        raise shared.wrong("default_prompt_name", "the name of one of its prompts")
    return str(name)


def _similarity(shared: Fields, default: Similarity) -> Similarity:
    name = shared.config.get("similarity_fn_name")
    if name is None:
        return default
    if name not in _SIMILARITIES:
        raise shared.wrong("similarity_fn_name", f"one of {', '.join(_SIMILARITIES)}")
    return _SIMILARITIES[str(name)]


def _dimensions(config: Fields) -> tuple[int, ...]:
    sizes = config.config.get("matryoshka_dimensions")
    if sizes is None:
        return ()
    if not isinstance(sizes, list) or not all(type(one) is int and one > 0 for one in sizes):
        raise config.wrong("matryoshka_dimensions", "a list of sizes")
    return tuple(sizes)
