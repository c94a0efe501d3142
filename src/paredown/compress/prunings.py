"""Resolves the prune steps of a recipe against a checkpoint, before any work."""

from collections.abc import Mapping
from dataclasses import dataclass

from paredown.compress.prune.method import ChecksModules
from paredown.compress.prune.pattern import NOfM, Pattern
from paredown.compress.quantize.method import check_holds_zeros
from paredown.compress.recipe import Recipe
from paredown.compress.schemes import Scheme
from paredown.compress.steps import PruneStep
from paredown.compress.targets import LinearModule, Targets, linear_modules
from paredown.errors import ConfigError, UnsupportedError, naming
from paredown.models.checkpoint import Checkpoint


@dataclass(frozen=True, kw_only=True)
class Pruning:
    """The pruning of one linear module: the step, and the module's own pattern."""

    step: PruneStep
    pattern: Pattern


def resolve_prunings(
    recipe: Recipe, source: Checkpoint, schemes: Mapping[str, Scheme]
) -> dict[str, Pruning]:
    """Returns the prunings by module name, in the order of the model; where steps name the same
    module, the later applies. Raises ConfigError for a target that matches nothing and a pattern
    that does not fit, UnsupportedError for a table, and for a format that cannot hold zeros."""
    modules = linear_modules(source)
    targets = Targets(modules)
    by_name = {module.name: module for module in modules}
    found: dict[str, Pruning] = {}
    for step in recipe.prune_steps:
        names = targets.matching(step.targets)
        for name in names:
            _check(by_name[name], step, source)
            found[name] = Pruning(step=step, pattern=step.pattern)
        if isinstance(step.pruner, ChecksModules):
            shapes = {name: by_name[name].shape for name in names}
            step.pruner.check_modules(shapes, step.pattern)
    for name, scheme in schemes.items():
        if name in found or name in source.pruned:
            check_holds_zeros(scheme.quantizer)
    return {name: found[name] for name in by_name if name in found}


def _check(module: LinearModule, step: PruneStep, source: Checkpoint) -> None:
    if module.name == source.names.embedding:
        raise UnsupportedError(
            "a table of embeddings is not pruned: a step reads single rows of it",
            seen=module.name,
            remedy="Prune the layers (targets: [layers]).",
        )
    if module.is_head:
        raise UnsupportedError(
            "the head of an encoder is not pruned: it has few weights, and every text depends on "
            "all of them",
            seen=module.name,
            remedy="Prune the layers (targets: [layers]).",
        )
    if module.name == source.names.output and source.spec.is_tied:
        raise UnsupportedError(
            "the output layer is tied to the embedding, which is not pruned",
            seen=module.name,
            remedy="Prune the layers (targets: [layers]).",
        )
    with naming(f"tensor {module.name}.weight"):
        if isinstance(step.pattern, NOfM):
            step.pattern.check_columns(module.shape[1])
        elif step.share.num_removed(module.shape[0] * module.shape[1]) == 0 < step.share.share:
            raise ConfigError(
                "a share is too small to remove a single weight",
                seen=f"{step.pattern.name} % of {module.shape[0]} x {module.shape[1]}",
                remedy="Give a larger share.",
            )
