"""A recipe checked against a checkpoint, before any work starts."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from paredown.compress.encoder_recipe import check_encoder_recipe
from paredown.compress.finish_module import ModuleWork
from paredown.compress.prunings import Pruning, resolve_prunings
from paredown.compress.quantize.method import LayerTarget
from paredown.compress.recipe import Recipe
from paredown.compress.recipe_names import find_recipe
from paredown.compress.require_floats import require_floats
from paredown.compress.schemes import Scheme, resolve_schemes, resolved_name
from paredown.compress.steps import QuantizeStep, TransformStep
from paredown.errors import UnsupportedError
from paredown.formats.tensor import STORED_DTYPES
from paredown.models.checkpoint import Checkpoint
from paredown.models.files.folder_files import check_files
from paredown.models.roles import linear_places, linear_roles
from paredown.spec.weight import ScaleDType, WeightSpec


@dataclass(frozen=True, kw_only=True)
class CheckedRecipe:
    """`schemes` and `prunings` give what becomes of each linear layer of `source`, by module. The
    recipe's name has the group sizes that its layers have."""

    source: Checkpoint
    recipe: Recipe
    schemes: Mapping[str, Scheme]
    prunings: Mapping[str, Pruning] = field(default_factory=dict)

    @property
    def float_dtype(self) -> ScaleDType:
        """The dtype of scales and of floats that change: the recipe's, or that of the source's
        linear layers."""
        if self.recipe.floats is not None:
            return self.recipe.floats
        role, layer = next(linear_places(self.source.spec))
        weight = self.source.tensors[f"{self.source.linear_name(role, layer)}.weight"]
        return STORED_DTYPES[weight.dtype]

    def changes(self, module: str) -> bool:
        """Whether the recipe makes that module anew."""
        return module in self.schemes or module in self.prunings

    def work(self, module: str) -> ModuleWork:
        """Returns what is done to a module."""
        scheme = self.schemes.get(module)
        return ModuleWork(
            name=module,
            target=self.target(scheme),
            scheme=scheme,
            pruning=self.prunings.get(module),
            was_pruned=module in self.source.pruned,
        )

    def target(self, scheme: Scheme | None) -> LayerTarget:
        spec = WeightSpec(dtype=self.float_dtype) if scheme is None else scheme.spec
        return LayerTarget(spec=spec, scale_dtype=self.float_dtype)

    def role_targets(self, layer: int) -> dict[str, LayerTarget]:
        """Returns the targets of one layer's linear layers, by role, without those in floats."""
        roles = linear_roles(self.source.spec, layer)
        names = {role: self.source.linear_name(role, layer) for role in roles}
        found = {role: self.schemes.get(name) for role, name in names.items()}
        return {role: self.target(one) for role, one in found.items() if one is not None}

    def needs_inputs(self, module: str) -> bool:
        """Whether a method needs the inputs of that module."""
        scheme = self.schemes.get(module)
        return self.needs_hessian(module) or (scheme is not None and scheme.needs_inputs)

    def needs_hessian(self, module: str) -> bool:
        """Whether a method needs the second moments of that module's inputs."""
        scheme, pruning = self.schemes.get(module), self.prunings.get(module)
        return (scheme is not None and scheme.quantizer.needs_hessian) or (
            pruning is not None and pruning.step.needs_hessian
        )


def check_recipe(source: Checkpoint, recipe: Recipe | str) -> CheckedRecipe:
    """Resolves a recipe, or its name, for each linear layer. Raises ConfigError for an unknown
    recipe and CheckpointError for a source with files that are not copied. Raises UnsupportedError
    for a recipe that this model cannot have and for a source that is already compressed."""
    if isinstance(recipe, str):
        recipe = find_recipe(recipe)
    require_floats(source)
    check_encoder_recipe(source, recipe)
    check_files(source.path)
    check_stacks(source, recipe)
    schemes = resolve_schemes(recipe, source)
    prunings = resolve_prunings(recipe, source, schemes)
    named = replace(recipe, name=resolved_name(recipe, schemes))
    return CheckedRecipe(source=source, recipe=named, schemes=schemes, prunings=prunings)


def check_stacks(source: Checkpoint, recipe: Recipe) -> None:
    """Raises UnsupportedError for a recipe that an encoder-decoder cannot have, if `source` is one.
    Budgets, cuts and trainings know one stack of layers, and no kernel reads cross-attention's keys
    with stored scales."""
    if source.spec.encoder is None:
        return
    if recipe.has_static_kv:
        raise UnsupportedError(
            "layers with cross-attention find the scales of keys and values themselves",
            seen=recipe.name,
            remedy="Choose a format with a scale for each token: -kv-int8, -kv-fp8.",
        )
    if any(not isinstance(step, TransformStep | QuantizeStep) for step in recipe.steps):
        raise UnsupportedError(
            "the layers of an encoder-decoder are only quantized: nothing is removed from them, "
            "and their codes are not trained",
            seen=recipe.name,
            remedy="Use a recipe that rounds: int8, w8a8, gptq-int4-g128, awq-int4-g128.",
        )
