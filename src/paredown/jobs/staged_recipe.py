"""A recipe checked stage by stage, before any work: each against what the one before it makes."""

from dataclasses import dataclass, replace

from paredown.compress.checked_recipe import CheckedRecipe, check_recipe, check_stacks
from paredown.compress.cut.cut import check_cuts
from paredown.compress.recipe import Recipe, Stage
from paredown.compress.steps import RecoverStep
from paredown.compress.trainable_schemes import check_trainable_schemes
from paredown.distill.quantized.train_config import quantized_train_config
from paredown.distill.train_config import TrainConfig
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.device import check_device


@dataclass(frozen=True, kw_only=True)
class StagedRecipe:
    """`stages` are what the recipe takes from folder to folder. `checked` is the whole recipe where
    a single pass over `source` does it. The recipe's name has the group sizes that its layers
    have."""

    source: Checkpoint
    recipe: Recipe
    stages: tuple[Stage, ...]
    checked: CheckedRecipe | None


def train_config(step: RecoverStep, num_threads: int | None = None) -> TrainConfig:
    """Returns how a recovery trains. Raises ConfigError for a budget of nothing."""
    return TrainConfig(
        num_tokens=step.num_tokens,
        minutes=step.minutes,
        num_threads=num_threads,
        device=step.device,
    )


def check_stages(source: Checkpoint, recipe: Recipe) -> StagedRecipe:
    """Resolves every stage against the sizes that it will find. Raises what `check_recipe` and the
    cuts raise."""
    check_stacks(source, recipe)
    spec = source.spec
    name = recipe.name
    stages = recipe.stages
    for stage in stages:
        found = source if spec == source.spec else replace(source, spec=spec)
        if stage.cuts:
            spec = check_cuts(found, [step.cut for step in stage.cuts])
            found = replace(source, spec=spec)
        checked = check_recipe(found, stage.passes)
        if stage.recover is not None:
            check_device(stage.recover.device)
            train = train_config(stage.recover)
            train.budget.check(train.batch_tokens)
        if stage.train is not None:
            layers = found.names.layer_modules(found.spec)
            check_trainable_schemes(
                stage.train,
                {name: one for name, one in checked.schemes.items() if name in layers},
            )
            check_device(stage.train.device)
            train = quantized_train_config(stage.train).train
            train.budget.check(train.batch_tokens)
        name = checked.recipe.name
    is_single = len(stages) == 1 and not stages[0].cuts and stages[0].train is None
    return StagedRecipe(
        source=source,
        recipe=replace(recipe, name=name),
        stages=stages,
        checked=checked if is_single else None,
    )
