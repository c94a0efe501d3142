"""Steps that remove, in a recipe's document (recipe_file.py):

- method: ffn                 # or heads, layers, experts, with that cut's options
  share: 0.25
- method: sparsegpt           # a pruner, with its options
  pattern: 2of4               # or a share in percent: 50
  targets: [layers]
  refine: [swaps, refit]
  budget: sensitivity         # alike (the default), global, sensitivity
  max_loss: 0.01              # without a budget; or max_kl: 0.05, of encoders min_cosine: 0.99
- method: recover
  tokens: 500000              # or minutes: 10
"""

from collections.abc import Mapping
from dataclasses import fields

from paredown.compress.cut.cuts import CUTS
from paredown.compress.methods import PRUNERS, REFINEMENTS
from paredown.compress.prune.pattern import Pattern, find_pattern
from paredown.compress.prune_names import RECOVER
from paredown.compress.recipe_values import checked_value, configured, refuse_unknown, wrong
from paredown.compress.steps import LAYERS, Budget, CutStep, PruneStep, RecoverStep
from paredown.errors import ConfigError

REMOVALS = (*CUTS, *PRUNERS, RECOVER)
_LIMITS = ("max_loss", "max_kl", "min_cosine")
Removal = CutStep | PruneStep | RecoverStep


def removal_step(method: str, parts: Mapping[str, object], where: str) -> Removal:
    """Builds the step of one of `REMOVALS` from its other keys. Raises ConfigError."""
    if method in CUTS:
        return CutStep(cut=configured(CUTS[method], parts, where))
    if method == RECOVER:
        refuse_unknown(parts, ("tokens", "minutes"), where)
        tokens, minutes = parts.get("tokens"), parts.get("minutes")
        return RecoverStep(
            num_tokens=checked_value(tokens, int | None, f"{where}, tokens"),
            minutes=checked_value(minutes, int | float | None, f"{where}, minutes"),
        )
    return _prune_step(method, dict(parts), where)


def removal_document(step: Removal) -> dict[str, object]:
    """Returns the document that `removal_step` reads as the same step."""
    if isinstance(step, CutStep):
        return {"method": _name_of(CUTS, step.cut), **options_of(step.cut)}
    if isinstance(step, RecoverStep):
        budget = {"tokens": step.num_tokens, "minutes": step.minutes}
        return {"method": RECOVER, **{key: one for key, one in budget.items() if one is not None}}
    document: dict[str, object] = {
        "method": _name_of(PRUNERS, step.pruner),
        "pattern": step.pattern.name,
        "targets": list(step.targets),
        "refine": [_name_of(REFINEMENTS, one) for one in step.refinements],
        "budget": step.budget,
        "max_loss": step.max_loss,
        "max_kl": step.max_kl,
        "min_cosine": step.min_cosine,
        **options_of(step.pruner),
    }
    unset: dict[str, object] = {"refine": [], "budget": "alike", **dict.fromkeys(_LIMITS)}
    return {key: one for key, one in document.items() if key not in unset or one != unset[key]}


def options_of(method: object) -> dict[str, object]:
    """Returns the options of a method that differ from the defaults."""
    return {
        field.name: getattr(method, field.name)
        for field in fields(method)  # type: ignore[arg-type]
        if getattr(method, field.name) != field.default
    }


def _prune_step(method: str, parts: dict[str, object], where: str) -> PruneStep:
    pattern = _pattern(parts.pop("pattern", None), f"{where}, pattern")
    targets = parts.pop("targets", [LAYERS])
    if not (isinstance(targets, list) and targets and all(isinstance(t, str) for t in targets)):
        raise wrong(f"{where}, targets", targets, "a list of names")
    refine = parts.pop("refine", [])
    if not isinstance(refine, list) or not all(one in REFINEMENTS for one in refine):
        raise wrong(f"{where}, refine", refine, f"a list of {', '.join(REFINEMENTS)}")
    budget = checked_value(parts.pop("budget", "alike"), Budget, f"{where}, budget")
    limits = {
        name: checked_value(parts.pop(name, None), int | float | None, f"{where}, {name}")
        for name in _LIMITS
    }
    return PruneStep(
        pruner=configured(PRUNERS[method], parts, where),
        pattern=pattern,
        targets=tuple(targets),
        refinements=tuple(REFINEMENTS[one]() for one in refine),
        budget=budget,
        **limits,
    )


def _pattern(value: object, where: str) -> Pattern:
    name = str(value) if isinstance(value, str | int | float) else ""
    pattern = find_pattern(name)
    if pattern is None:
        raise ConfigError(
            f"{where} is not a share in percent nor n of m",
            seen=value,
            remedy="Give 50 for half of the weights, or 2of4.",
        )
    return pattern


def _name_of(known: Mapping[str, type], method: object) -> str:
    return next(name for name, kind in known.items() if kind is type(method))
