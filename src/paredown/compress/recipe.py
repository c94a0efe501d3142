"""Recipe: an ordered list of steps, each with its targets. docs/guide/recipes.md has examples.

A transform step changes the layers without changing what they compute; a quantize step says what
its targets become. If two quantize steps name the same module, the later one applies.
"""

from dataclasses import dataclass, replace

from paredown.compress.group_sizes import INPUTS_MARK, fit_groups
from paredown.compress.quantize.method import Quantizer, Transform
from paredown.errors import ConfigError
from paredown.spec.kv import KVFormat
from paredown.spec.weight import ActivationDType, ScaleDType, WeightSpec

# Targets besides the names of modules: every linear layer of the transformer layers, the output
# layer, and the table of embeddings.
LAYERS = "layers"
OUTPUT = "head"
EMBEDDING = "embedding"


@dataclass(frozen=True, kw_only=True)
class QuantizeStep:
    """Quantizes its targets to a format.

    `targets` are "layers", "head", "embedding", a role ("down"), a module's name, or "re:" and a
    regular expression that matches a module's whole name. With `group_sizes` each module has the
    largest size that divides its columns, instead of that of `spec`, which is the largest of them.
    Empty means that all modules have that of `spec`. Raises ConfigError or UnsupportedError for a
    format that the quantizer does not make.
    """

    quantizer: Quantizer
    spec: WeightSpec
    targets: tuple[str, ...] = (LAYERS,)
    group_sizes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        self.quantizer.check(self.spec)

    def spec_for(self, num_columns: int) -> WeightSpec:
        """Returns the format of a module with that many columns; the smallest groups if none
        divides."""
        return fit_groups(self.spec, self.group_sizes, num_columns)


@dataclass(frozen=True, kw_only=True)
class TransformStep:
    """Transforms every transformer layer."""

    transform: Transform


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A recipe. `floats` casts every tensor that is not quantized (None keeps them unchanged).
    `kv_cache` is how a server should keep keys and values (None: its default).

    Raises ConfigError for a transform after a quantize step, and for a `kv_cache` without one.
    """

    name: str
    steps: tuple[QuantizeStep | TransformStep, ...] = ()
    floats: ScaleDType | None = None
    kv_cache: KVFormat | None = None

    def __post_init__(self) -> None:
        kinds = [isinstance(step, QuantizeStep) for step in self.steps]
        if kinds != sorted(kinds):
            raise ConfigError(
                "a transform stands after what quantizes",
                seen=f"step {len(kinds) - kinds[::-1].index(False)} of recipe {self.name}",
                remedy="Put the transforms first: they change the floats that are quantized.",
            )
        if kinds and not any(kinds):
            raise ConfigError(
                "a recipe transforms layers and quantizes none, which would change nothing",
                seen=f"recipe {self.name}",
                remedy="Add a step that quantizes (method: rtn, format: int4-g128).",
            )
        if self.kv_cache is not None and not any(kinds):
            raise ConfigError(
                "the form of keys and values stands beside quantized weights, and there are none",
                seen=f"{self.kv_cache} in recipe {self.name}",
                remedy="Choose a quantized format, or give --kv-dtype to the verb that runs the "
                "model.",
            )

    @property
    def transforms(self) -> tuple[Transform, ...]:
        return tuple(step.transform for step in self.steps if isinstance(step, TransformStep))

    @property
    def quantize_steps(self) -> tuple[QuantizeStep, ...]:
        return tuple(step for step in self.steps if isinstance(step, QuantizeStep))

    @property
    def linear(self) -> WeightSpec:
        """The format of most linear layers, for estimates and the colours of a plot."""
        for step in self.quantize_steps:
            if LAYERS in step.targets:
                return step.spec
        tables = ((OUTPUT,), (EMBEDDING,))
        steps = [step for step in self.quantize_steps if step.targets not in tables]
        if steps:
            return steps[0].spec
        return WeightSpec(dtype=self.floats or "bf16")

    @property
    def output(self) -> WeightSpec | None:
        """The format of the output layer; None leaves it in floats."""
        specs = [step.spec for step in self.quantize_steps if OUTPUT in step.targets]
        return specs[-1] if specs else None

    @property
    def has_static_kv(self) -> bool:
        """Whether scales of keys and values are stored, one of each per layer."""
        return self.kv_cache is not None and self.kv_cache.endswith("-static")

    def has_layers_of(self, other: "Recipe") -> bool:
        """Returns whether `other` is this recipe plus a step for the output layer, and both only
        make weights: their layers are then the same."""
        output_step = [step for step in other.quantize_steps if step.targets == (OUTPUT,)]
        return (
            bool(output_step)
            and replace(other, name=self.name, steps=other.steps[: -len(output_step)]) == self
            and not self.transforms
            and not self.has_static_kv
        )

    @property
    def needs_calibration(self) -> bool:
        """Whether the recipe needs the model's inputs on a text."""
        return (
            bool(self.transforms)
            or self.has_static_kv
            or any(
                step.quantizer.needs_hessian or step.spec.activations == "int8_static"
                for step in self.quantize_steps
            )
        )


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
