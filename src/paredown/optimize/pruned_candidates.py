"""Candidates that are pruned as well as quantized, and what each of them is worth."""

from collections.abc import Mapping, Sequence

from paredown.compress.group_sizes import ANY_GROUPS, groups_name
from paredown.compress.recipe import Recipe
from paredown.compress.recipe_names import find_recipe
from paredown.compress.steps import RecoverStep
from paredown.evaluate.quality.measurement import Measurement
from paredown.spec.model import ModelSpec
from paredown.units import MEGA

# The share of the layers that one candidate leaves out.
_LAYERS_SHARE = 1 / 8
# How codes are found for a smaller model, and for zeros.
_SMALLER = f"gptq-int4{groups_name(ANY_GROUPS)}"
_ZEROS = ("sparsegpt-50-int8", "sparsegpt-2of4-int8")
# Sizes and speeds that differ by less are alike: the spread of timing, and the tables of a format.
_ALIKE = 1.02


def pruned_recipes(spec: ModelSpec, tables: str, recover: RecoverStep | None) -> list[Recipe]:
    """Returns the recipes of pruned candidates, the quickest first; `tables` ends every name with
    the formats of output layer and embedding. With `recover` smaller models are trained too."""
    cuts = [f"prune-layers-{max(1, round(_LAYERS_SHARE * spec.num_layers))}", "prune-ffn-25"]
    if spec.num_layers < 2:
        del cuts[0]
    if spec.has_experts:
        cuts.append("prune-experts-25")
    names = [*_ZEROS, *(f"{cut}-{_SMALLER}" for cut in cuts)]
    if recover is not None:
        names += [f"{cut}-{recover.name}-{_SMALLER}" for cut in cuts]
    return [find_recipe(f"{name}{tables}") for name in names]


def pruned_words(
    candidates: Sequence[Measurement], recipes: Mapping[str, Recipe]
) -> dict[str, str]:
    """Returns by name what each pruned candidate is worth: the candidate that makes it pointless,
    or that there is none."""
    removing = {name for name, recipe in recipes.items() if recipe.cut_steps or recipe.prune_steps}
    plain = [one for one in candidates if one.name not in removing]
    return {one.name: _words(one, plain) for one in candidates if one.name in removing}


def _words(one: Measurement, plain: Sequence[Measurement]) -> str:
    better = [other for other in plain if _is_as_good(other, one)]
    if better:
        best = min(better, key=_loss)
        return (
            f"loses: {best.name} has {_figures(best)}, where this has {_figures(one)}; fewer bits "
            "cost less than fewer weights here"
        )
    smaller = [other for other in plain if other.file_bytes <= _ALIKE * one.file_bytes]
    faster = [other for other in plain if _speed(other) >= _speed(one) / _ALIKE]
    near = [
        f"{least.name}, as {what}, has {_figures(least)}"
        for what, others in (("small", smaller), ("fast", faster))
        if others
        for least in [min(others, key=_loss)]
    ]
    rivals = "; ".join(near) or "none is as small, and none as fast"
    return f"wins a place: {_figures(one)}; of what is not pruned, {rivals}"


def _is_as_good(other: Measurement, one: Measurement) -> bool:
    """Whether `other` is as small, as fast and as near to the original as `one`."""
    return (
        other.file_bytes <= _ALIKE * one.file_bytes
        and _speed(other) >= _speed(one) / _ALIKE
        and _loss(other) <= _loss(one)
    )


def _figures(one: Measurement) -> str:
    size = f"{one.file_bytes / MEGA:.1f} MB"
    if one.cosine_mean is not None:
        return f"a cosine of {one.cosine_mean:.4f} at {size} and {_speed(one):,.0f} texts/s"
    return f"KL {_loss(one):.4f} at {size} and {_speed(one):,.0f} tokens/s"


def _loss(one: Measurement) -> float:
    if one.cosine_mean is not None:
        return 1 - one.cosine_mean
    return float("inf") if one.kl_divergence is None else one.kl_divergence


def _speed(one: Measurement) -> float:
    return one.decode_tokens_per_s or one.texts_per_s or 0.0
