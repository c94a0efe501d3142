"""The part of a recipe's name that says what is removed, before the part that says what is
quantized:

    [prune-UNIT-AMOUNT-]...[METHOD[-BUDGET]-PATTERN[-REFINEMENT]...-][recover-AMOUNT-]

prune-ffn-25-gptq-int4-g128 has a cut; wanda-2of4-swaps-refit, magnitude-global-50 and
sparsegpt-90-to-0.01-int8 make weights zero; recover-500000 trains for as many tokens, and
recover-10m for ten minutes.
"""

import re
from collections.abc import Callable, Iterable

from paredown.compress.cut.cuts import CUTS
from paredown.compress.cut.experts import CutExperts
from paredown.compress.cut.ffn import CutNeurons
from paredown.compress.cut.heads import CutHeads
from paredown.compress.cut.layers import CutLayers
from paredown.compress.cut.method import Cut
from paredown.compress.methods import PRUNERS, REFINEMENTS
from paredown.compress.prune.method import Pruner
from paredown.compress.prune.pattern import find_pattern
from paredown.compress.prune.sparsegpt import SparseGPT
from paredown.compress.steps import Budget, CutStep, PruneStep, RecoverStep, Step
from paredown.errors import ConfigError

CUT = "prune"
RECOVER = "recover"
# Before what ends pruning: the predicted loss, the measured KL divergence or the measured cosine.
TO = "to"
TO_KL = "to-kl"
TO_COSINE = "to-cosine"
# Methods with other options than their defaults.
NAMED_PRUNERS: dict[str, Pruner] = {"rose": SparseGPT(order="loss")}
# What the amount in a name is: percent, and for layers a number of them.
_CUT_AMOUNTS: dict[str, Callable[[float], Cut]] = {
    "ffn": lambda percent: CutNeurons(share=percent / 100),
    "heads": lambda percent: CutHeads(share=percent / 100),
    "layers": lambda num: CutLayers(num=int(num)),
    "experts": lambda percent: CutExperts(share=percent / 100),
}
_BUDGETS: dict[str, Budget] = {"global": "global", "sensitivity": "sensitivity"}
_NUMBER = re.compile(r"\d+(\.\d+)?")
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)(m?)")

PRUNER_NAMES = tuple(
    one
    for one in (*(name.replace("_", "-") for name in PRUNERS), *NAMED_PRUNERS)
    if one != "given-mask"
)
PRUNE_SYNTAX = "[prune-UNIT-AMOUNT-][METHOD-PATTERN-][recover-AMOUNT-]"
PRUNE_EXPLAINED = f"""  what goes before all of that removes: {PRUNE_SYNTAX}
  UNIT    a smaller model that every program loads: {", ".join(CUTS)}; AMOUNT is percent, and a
          number for layers: prune-ffn-25, prune-layers-4-gptq-int4-g128
  METHOD  zeros in the layers: {", ".join(PRUNER_NAMES)};
          PATTERN is percent or n in m: wanda-50, sparsegpt-2of4-int8; then {", ".join(REFINEMENTS)}
          to choose again and to refit: wanda-2of4-swaps-refit; magnitude-global-50 has one
          threshold for the whole model, wanda-sensitivity-50 removes more where it costs less,
          wanda-90-to-0.01 ends where the predicted loss reaches that, wanda-90-to-kl-0.05 where
          the measured KL divergence does, and of an encoder wanda-90-to-cosine-0.99 where the least
          cosine does
  recover-  training against the original for tokens or minutes, which needs torch and time:
          prune-ffn-25-recover-500000-int4-g128, prune-layers-2-recover-10m
"""


def split_removals(name: str) -> tuple[tuple[Step, ...], str]:
    """Returns the steps that a recipe's name begins with, and the rest of the name. Raises
    ConfigError for a part that is begun and not completed."""
    steps: list[Step] = []
    words = name.split("-") if name else []
    while words:
        if words[0] == CUT:
            steps.append(_cut(words, name))
        elif words[0] == RECOVER:
            steps.append(_recover(words, name))
        elif (method := _method(words)) is not None:
            steps.append(_prune(method, words, name))
        else:
            break
    return tuple(steps), "-".join(words)


def _method(words: list[str]) -> str | None:
    """Takes the name of a pruner from the front of `words`, where it stands there."""
    for name in sorted(PRUNER_NAMES, key=len, reverse=True):
        own = name.split("-")
        if words[: len(own)] == own:
            del words[: len(own)]
            return name
    return None


def _prune(method: str, words: list[str], name: str) -> PruneStep:
    budget: Budget = "alike"
    if words and words[0] in _BUDGETS:
        budget = _BUDGETS[words.pop(0)]
    pattern = find_pattern(words.pop(0)) if words else None
    if pattern is None:
        raise ConfigError(
            f"{method} is not followed by what it removes",
            seen=name,
            remedy=f"Write a share in percent or a pattern: {method}-50, {method}-2of4.",
        )
    refinements = []
    while words and words[0] in REFINEMENTS:
        refinements.append(REFINEMENTS[words.pop(0)]())
    max_loss, max_kl, min_cosine = (_limit(words, one) for one in (TO, TO_KL, TO_COSINE))
    pruner = NAMED_PRUNERS.get(method) or PRUNERS[method.replace("-", "_")]()
    return PruneStep(
        pruner=pruner,
        pattern=pattern,
        refinements=tuple(refinements),
        budget=budget,
        max_loss=max_loss,
        max_kl=max_kl,
        min_cosine=min_cosine,
    )


def _limit(words: list[str], mark: str) -> float | None:
    """Takes a limit, and the mark that it follows, from the front of `words`."""
    before = mark.split("-")
    end = len(before)
    if words[:end] != before or not _NUMBER.fullmatch((words[end:] or [""])[0]):
        return None
    limit = float(words[end])
    del words[: end + 1]
    return limit


def _cut(words: list[str], name: str) -> CutStep:
    unit, amount = (*words[1:3], "", "")[:2]
    if unit not in CUTS or not _NUMBER.fullmatch(amount):
        raise ConfigError(
            f"{CUT}- is not followed by a unit and how much of it goes",
            seen=name,
            remedy=f"Write one of {_listed(CUTS)} and a number: {CUT}-ffn-25, {CUT}-layers-4.",
        )
    del words[:3]
    return CutStep(cut=_CUT_AMOUNTS[unit](float(amount)))


def _recover(words: list[str], name: str) -> RecoverStep:
    found = _AMOUNT.fullmatch(words[1]) if len(words) > 1 else None
    if found is None:
        raise ConfigError(
            f"{RECOVER}- is not followed by a number of tokens or minutes",
            seen=name,
            remedy=f"Write {RECOVER}-500000 for tokens, or {RECOVER}-10m for minutes.",
        )
    del words[:2]
    if found[2]:
        return RecoverStep(minutes=float(found[1]))
    return RecoverStep(num_tokens=int(float(found[1])))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
