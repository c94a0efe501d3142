"""The search among an encoder's recipes: from those that need no calibration to those that do.

Formats that decoders have for their output layer, their keys and values or few tokens a step are
left out: an encoder has none of these. Every token of a text is an input at once, so that inputs
of one int8 code a token (w8a8) count as much as the weights.
"""

import time
from collections.abc import Sequence

from paredown.compress.group_sizes import ANY_GROUPS, groups_name
from paredown.compress.recipe import Recipe
from paredown.compress.recipe_names import find_recipe
from paredown.compress.steps import EMBEDDING, RecoverStep
from paredown.optimize.candidates import Candidates, Skipped
from paredown.optimize.deadline import Deadline, OutOfTimeError
from paredown.optimize.encoder_candidates import EncoderSetup, measure_encoder_candidates
from paredown.optimize.pruned_candidates import pruned_recipes
from paredown.optimize.trained_candidates import trained_recipes
from paredown.progress import OnProgress
from paredown.spec.model import ModelSpec

_GROUPS = groups_name(ANY_GROUPS)
_FLOATS = "bf16"
_ROUNDED = ("int8", "w8a8", f"int4{_GROUPS}")
_CALIBRATED = (
    "smoothquant-w8a8",
    f"gptq-int6{_GROUPS}",
    f"gptq-int4{_GROUPS}",
    f"awq-gptq-int4{_GROUPS}",
)
# The table of tokens is in int8 too, where it is so much of the weights.
_TABLE_SHARE = 0.1
_TABLE = f"-{EMBEDDING}-int8"


def search_encoder(
    setup: EncoderSetup,
    deadline: Deadline,
    found: Candidates,
    not_tried: list[Skipped],
    on_progress: OnProgress,
    *,
    prune: bool = False,
    recover: RecoverStep | None = None,
    train_minutes: float | None = None,
) -> None:
    """Adds candidates to `found` until all are measured or the time is over; `not_tried` gets the
    others. With `prune` some remove weights, with `recover` these are trained again, and
    `train_minutes` trains the codes of few bits."""
    spec = setup.source.spec
    table = _table(spec)
    groups = [[find_recipe(name) for name in (_FLOATS, *(f"{one}{table}" for one in _ROUNDED))]]
    groups += [[find_recipe(f"{name}{table}")] for name in _CALIBRATED]
    if prune:
        groups += [[recipe] for recipe in pruned_recipes(spec, table, recover)]
    if train_minutes is not None:
        groups += [[recipe] for recipe in trained_recipes(table, train_minutes)]
    longest_s = 0.0
    for number, recipes in enumerate(groups):

        def report(what: str, share: float, number: int = number) -> None:
            on_progress(what, (number + share) / len(groups))
            if found.measurements:
                deadline.check()

        estimated_s = longest_s + _training_s(recipes)
        if found.measurements and not deadline.allows(estimated_s):
            reason = f"about {estimated_s:.0f} s more, of {max(deadline.left_s, 0):.0f} s"
            not_tried += [Skipped(name=one.name, reason=reason) for one in recipes]
            continue
        start_s = time.perf_counter()
        try:
            measure_encoder_candidates(setup, recipes, found, report)
        except OutOfTimeError:
            reason = "it took longer than the time allowed"
            told = {*found.recipes, *(one.name for one in found.skipped)}
            rest = [one.name for one in recipes if one.name not in told]
            not_tried += [Skipped(name=name, reason=reason) for name in rest]
        spent_s = time.perf_counter() - start_s - _training_s(recipes)
        longest_s = max(longest_s, spent_s / len(recipes))


def _table(spec: ModelSpec) -> str:
    """Returns the end of every name that says how the table of tokens is kept."""
    share = spec.vocab_size * spec.hidden_size / spec.num_parameters()
    return _TABLE if share >= _TABLE_SHARE else ""


def _training_s(recipes: Sequence[Recipe]) -> float:
    steps = [step for one in recipes for step in (*one.recover_steps, one.train_step)]
    return sum(60 * (step.minutes or 0) for step in steps if step is not None)
