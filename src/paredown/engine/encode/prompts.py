"""Chooses the prompt that is put before a text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paredown.engine.encode.read_texts import Text
from paredown.engine.sampling.field_rules import ParameterError
from paredown.models.encoder_settings import EncoderSettings
from paredown.shown import quoted

# Names of what a text is for, with the names under which models have its prompt.
INPUT_TYPES: Mapping[str, tuple[str, ...]] = {
    "query": ("query", "search_query"),
    "search_query": ("search_query", "query"),
    "document": ("document", "search_document", "passage", "corpus"),
    "search_document": ("search_document", "document", "passage", "corpus"),
    "passage": ("passage", "document", "search_document", "corpus"),
    "classification": ("classification", "Classification"),
    "clustering": ("clustering", "Clustering"),
}


@dataclass(frozen=True, kw_only=True)
class PromptChoice:
    """Which prompt is put before a text: `prompt` itself, else the one that the model has under
    `prompt_name`, else that for `input_type`, else the model's default."""

    prompt: str | None = None
    prompt_name: str | None = None
    input_type: str | None = None

    def text(self, settings: EncoderSettings) -> str:
        """Returns the prompt. A model without a prompt for a type takes the text as it is. Raises
        ParameterError for unknown names."""
        prompts = settings.prompts
        if self.prompt is not None:
            return self.prompt
        if self.prompt_name is not None:
            return _by_name(prompts, self.prompt_name)
        if self.input_type is not None:
            return _by_type(prompts, self.input_type)
        return prompts[settings.default_prompt] if settings.default_prompt is not None else ""

    def before(self, texts: Sequence[Text], settings: EncoderSettings) -> str:
        """Returns the prompt for these texts; the model's default is left out before token ids.
        Raises ParameterError for another prompt before token ids."""
        if isinstance(texts[0], str):
            return self.text(settings)
        asked = {
            name: value
            for name in ("prompt", "prompt_name", "input_type")
            if (value := getattr(self, name)) is not None
        }
        if asked and self.text(settings):
            name, value = next(iter(asked.items()))
            raise ParameterError(
                name,
                seen=f"{quoted(value, 80)} before token ids",
                remedy="Put the prompt's own tokens before the others, or send strings.",
            )
        return ""


def _by_name(prompts: Mapping[str, str], name: str) -> str:
    if name not in prompts:
        known = ", ".join(prompts) or "none"
        raise ParameterError(
            "prompt_name",
            seen=quoted(name, 80),
            remedy=f"Prompts of this model: {known}. Any other can be given as prompt.",
        )
    return prompts[name]


def _by_type(prompts: Mapping[str, str], input_type: str) -> str:
    names = INPUT_TYPES.get(input_type, (input_type,))
    found = next((name for name in names if name in prompts), None)
    if found is None and input_type not in INPUT_TYPES:
        raise ParameterError(
            "input_type",
            seen=quoted(input_type, 80),
            remedy=f"Use one of {', '.join(dict.fromkeys([*INPUT_TYPES, *prompts]))}.",
        )
    return "" if found is None else prompts[found]
