"""SamplingDefaults: what holds for fields of SamplingParams that nobody gave."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from paredown.engine.sampling.field_rules import ParameterError
from paredown.engine.sampling.sampling_params import RULES, SamplingParams
from paredown.shown import quoted


@dataclass(frozen=True, kw_only=True)
class SamplingDefaults:
    """A model's own settings; None where it has none. `max_tokens` is for answers whose length
    nobody bounds otherwise."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical_p: float | None = None
    repetition_penalty: float | None = None
    max_tokens: int | None = None

    @classmethod
    def of(cls, settings: Mapping[str, object]) -> tuple["SamplingDefaults", list[str]]:
        """Returns the defaults in a checkpoint's settings (models/generation_config.py), and a note
        for each that is out of range and left out."""
        found, notes = dict[str, Any](), []
        for name in (one.name for one in fields(cls)):
            value = settings.get(name)
            if value is None or (name == "max_tokens" and value == 0):
                continue
            try:
                RULES[name].check(name, value)
            except ParameterError:
                notes.append(f"its default {name} is out of range and not used: {quoted(value)}")
            else:
                found[name] = value
        return cls(**found), notes

    @property
    def of_draws(self) -> dict[str, Any]:
        """Returns the fields of SamplingParams that have a default, but for `max_tokens`."""
        names = (one.name for one in fields(self) if one.name != "max_tokens")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def params(self) -> SamplingParams:
        """Returns parameters of which nobody gave any."""
        given = self.of_draws
        if self.max_tokens is not None:
            given["max_tokens"] = self.max_tokens
        return SamplingParams(**given)

    def told(self) -> str:
        """Returns the settings as a line shows them; "" where there are none."""
        names = (one.name for one in fields(self))
        given = ((name, getattr(self, name)) for name in names)
        return ", ".join(f"{name} {value:g}" for name, value in given if value is not None)
