"""Recipes with what a verb's options change in them."""

from collections.abc import Callable
from dataclasses import replace

from paredown.compress.group_sizes import INPUTS_MARK
from paredown.compress.prune_names import TO, TO_COSINE, TO_KL
from paredown.compress.recipe import Recipe
from paredown.compress.steps import (
    EMBEDDING,
    CutStep,
    PruneStep,
    QuantizeStep,
    RecoverStep,
    Step,
    TrainStep,
)
from paredown.errors import ConfigError
from paredown.spec.device import Device
from paredown.spec.weight import ActivationDType


def with_inputs(recipe: Recipe, activations: ActivationDType) -> Recipe:
    """Returns the recipe with its inputs rounded to `activations`, for weights that take such
    inputs. Raises ConfigError if none does."""

    def changed(step: QuantizeStep) -> QuantizeStep:
        spec = step.spec
        if step.targets == (EMBEDDING,) or activations not in spec.free_activations:
            return step
        return replace(step, spec=replace(spec, activations=activations))

    steps = tuple(
        changed(step) if isinstance(step, QuantizeStep) else step for step in recipe.steps
    )
    if steps == recipe.steps:
        raise ConfigError(
            "no weights of the recipe read such inputs otherwise than as they are",
            seen=f"{activations}, recipe {recipe.name}",
            remedy="Leave --activations out, or choose a format of integers (int8, int4-g128); "
            "w8a8 and w4a8-g128 have inputs in 8 bits by their format.",
        )
    return replace(recipe, name=f"{recipe.name}{INPUTS_MARK}{activations}", steps=steps)


def with_recovery(recipe: Recipe, recover: RecoverStep) -> Recipe:
    """Returns the recipe with a recovery after everything that it removes. Raises ConfigError if it
    removes nothing, or recovers at that place already."""
    removing = [isinstance(step, CutStep | PruneStep) for step in recipe.steps]
    if not any(removing):
        raise ConfigError(
            "a recovery follows what a recipe removes, and this one removes nothing",
            seen=recipe.name,
            remedy="Choose a recipe that cuts or prunes: prune-ffn-25-int4-g128, wanda-50.",
        )
    place = len(removing) - removing[::-1].index(True)
    before, after = recipe.steps[:place], recipe.steps[place:]
    if after and isinstance(after[0], RecoverStep):
        raise ConfigError(
            "the recipe recovers already",
            seen=f"{after[0].name} in {recipe.name}",
            remedy="Change it there, or leave --recover-tokens and --recover-minutes out.",
        )
    name = f"{recipe.name}-{recover.name}"
    return replace(recipe, name=name, steps=(*before, recover, *after))


def with_training_budget(
    recipe: Recipe, num_tokens: int | None = None, minutes: float | None = None
) -> Recipe:
    """Returns the recipe with that budget for the training of its codes. Raises ConfigError if it
    trains none, or has a budget already."""
    step = recipe.train_step
    if step is None:
        raise ConfigError(
            "a budget of training needs a recipe that trains codes, and this one does not",
            seen=recipe.name,
            remedy="Choose one: qad-int3-g64, or gptq-int3-g64-scales.",
        )
    if step.budget_name:
        raise ConfigError(
            "the recipe has a budget of training already",
            seen=f"{step.budget_name} in {recipe.name}",
            remedy="Change it there, or leave --train-tokens and --train-minutes out.",
        )
    changed: TrainStep = replace(step, num_tokens=num_tokens, minutes=minutes)
    return replace(
        recipe,
        name=f"{recipe.name}-{changed.budget_name}",
        steps=(*recipe.steps[:-1], changed),
    )


def with_train_device(recipe: Recipe, device: Device) -> Recipe:
    """Returns the recipe with all that it trains on that device. Raises ConfigError if it trains
    nothing."""
    if not recipe.recover_steps and recipe.train_step is None:
        raise ConfigError(
            "a device to train on needs a recipe that trains, and this one does not",
            seen=recipe.name,
            remedy="Choose one: qad-int3-g64, or prune-ffn-25-recover-500000.",
        )
    steps = tuple(
        replace(step, device=device) if isinstance(step, RecoverStep | TrainStep) else step
        for step in recipe.steps
    )
    return replace(recipe, steps=steps)


def with_max_loss(recipe: Recipe, max_loss: float) -> Recipe:
    """Returns the recipe with its pruning ended where the predicted loss reaches `max_loss`. Raises
    ConfigError if it prunes nothing, or has another limit."""
    steps = _limited(recipe, lambda step: replace(step, max_loss=max_loss))
    return replace(recipe, name=f"{recipe.name}-{TO}-{max_loss:g}", steps=steps)


def with_max_kl(recipe: Recipe, max_kl: float) -> Recipe:
    """Returns the recipe with its pruning ended where the measured KL divergence reaches `max_kl`,
    in nats per token. Raises ConfigError if it prunes nothing, or has another limit."""
    steps = _limited(recipe, lambda step: replace(step, max_kl=max_kl))
    return replace(recipe, name=f"{recipe.name}-{TO_KL}-{max_kl:g}", steps=steps)


def with_min_cosine(recipe: Recipe, min_cosine: float) -> Recipe:
    """Returns the recipe for an encoder with its pruning ended where the least measured cosine
    falls to `min_cosine`. Raises ConfigError if it prunes nothing, or has another limit."""
    steps = _limited(recipe, lambda step: replace(step, min_cosine=min_cosine))
    return replace(recipe, name=f"{recipe.name}-{TO_COSINE}-{min_cosine:g}", steps=steps)


def _limited(recipe: Recipe, limited: Callable[[PruneStep], PruneStep]) -> tuple[Step, ...]:
    if not recipe.prune_steps:
        raise ConfigError(
            "a loss to prune to follows a method that prunes, and the recipe has none",
            seen=recipe.name,
            remedy="Choose one: wanda-90 removes at most 90 %, and ends at the loss.",
        )
    return tuple(limited(step) if isinstance(step, PruneStep) else step for step in recipe.steps)
