"""The part of a recipe's name that says how codes are trained:

    qad-[METHOD-]FORMAT...[-AMOUNT]       also qat- and llm-qat-
    [METHOD-]FORMAT...-scales[-AMOUNT]

AMOUNT is a number of tokens, or of minutes: qad-int3-g64-500000, gptq-int3-g64-scales-10m.
"""

import re

from paredown.compress.steps import DEFAULT_TRAIN_TOKENS, TrainMethod, TrainStep

_METHODS: dict[str, TrainMethod] = {"llm-qat": "llm_qat", "qad": "qad", "qat": "qat"}
_SCALES = "-scales"
_AMOUNT = re.compile(r"(.+)-(\d+(?:\.\d+(?=m))?)(m?)")

TRAIN_EXPLAINED = f"""  what trains the codes, which needs torch and time:
  qad-    until the model predicts what the original does, from the codes of gptq unless rtn
          is named: qad-int3-g64, qad-rtn-int4-g128; qat- until it predicts the text;
          llm-qat- on text that the original makes: llm-qat-w4a8-kv8
  -scales the scales alone: gptq-int3-g64-scales
          a number of tokens or minutes may follow ({DEFAULT_TRAIN_TOKENS} tokens where none
          does): qad-int3-g64-500000, gptq-int3-g64-scales-10m
"""


def split_training(name: str) -> tuple[TrainStep, str] | None:
    """Returns the step that a recipe's name asks for, and the rest of the name; None where it asks
    for none. Raises ConfigError for a budget of nothing."""
    body, tokens, minutes = _split_amount(name)
    for words, method in _METHODS.items():
        if body.startswith(f"{words}-"):
            step = TrainStep(method=method, num_tokens=tokens, minutes=minutes)
            return step, body.removeprefix(f"{words}-")
    if body.endswith(_SCALES):
        step = TrainStep(method="scales", num_tokens=tokens, minutes=minutes)
        return step, body.removesuffix(_SCALES)
    return None


def _split_amount(name: str) -> tuple[str, int | None, float | None]:
    found = _AMOUNT.fullmatch(name)
    if found is None:
        return name, None, None
    body, amount, is_minutes = found.groups()
    return (body, None, float(amount)) if is_minutes else (body, int(amount), None)
