"""Recipe: an ordered list of steps, each with its targets. docs/guide/recipes.md has examples.

A cut step makes layers smaller, a prune step makes weights zero, and a recover step trains what
came before. A transform step changes the layers without changing what they compute; a quantize
step says what its targets become. If two quantize steps name the same module, the later one
applies. A train step, the last, trains the codes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from paredown.compress.quantize.method import Transform
from paredown.compress.steps import (
    EMBEDDING,
    LAYERS,
    OUTPUT,
    CutStep,
    PruneStep,
    QuantizeStep,
    RecoverStep,
    Step,
    TrainStep,
    TransformStep,
)
from paredown.errors import ConfigError
from paredown.spec.kv import KVFormat
from paredown.spec.weight import ScaleDType, WeightSpec

# The order of steps within a stage.
_ORDER = (CutStep, PruneStep, RecoverStep, TransformStep, QuantizeStep, TrainStep)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A recipe. `floats` casts every tensor that is not quantized (None keeps them unchanged).
    `kv_cache` is how a server should keep keys and values (None: its default).

    Raises ConfigError for steps in an order that cannot be meant, for a transform without a
    quantize step, and for a `kv_cache` without one.
    """

    name: str
    steps: tuple[Step, ...] = ()
    floats: ScaleDType | None = None
    kv_cache: KVFormat | None = None

    def __post_init__(self) -> None:
        for number, (step, after) in enumerate(zip(self.steps, self.steps[1:], strict=False)):
            if not _may_follow(step, after):
                raise ConfigError(
                    "a step of the recipe stands after one that it must precede",
                    seen=f"step {number + 2} of recipe {self.name}",
                    remedy="Cut and prune first, then recover, transform, quantize and train. More "
                    "may be cut and pruned after a recovery.",
                )
        first = self.steps[0] if self.steps else None
        if isinstance(first, RecoverStep):
            raise ConfigError(
                "a recipe recovers before anything is removed",
                seen=f"recipe {self.name}",
                remedy="Put what prunes before it (method: ffn, share: 0.25, for one).",
            )
        if self.transforms and not self.quantize_steps:
            raise ConfigError(
                "a recipe transforms layers and quantizes none, which would change nothing",
                seen=f"recipe {self.name}",
                remedy="Add a step that quantizes (method: rtn, format: int4-g128).",
            )
        if self.train_step is not None and not self.quantize_steps:
            raise ConfigError(
                "a recipe trains codes and quantizes nothing",
                seen=f"recipe {self.name}",
                remedy="Add a step that quantizes (method: gptq, format: int4-g128), or train "
                "floats (method: recover).",
            )
        if self.kv_cache is not None and not self.quantize_steps:
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
    def prune_steps(self) -> tuple[PruneStep, ...]:
        return tuple(step for step in self.steps if isinstance(step, PruneStep))

    @property
    def cut_steps(self) -> tuple[CutStep, ...]:
        return tuple(step for step in self.steps if isinstance(step, CutStep))

    @property
    def recover_steps(self) -> tuple[RecoverStep, ...]:
        return tuple(step for step in self.steps if isinstance(step, RecoverStep))

    @property
    def train_step(self) -> TrainStep | None:
        last = self.steps[-1] if self.steps else None
        return last if isinstance(last, TrainStep) else None

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
            and other.train_step is None
            and replace(other, name=self.name, steps=other.steps[: -len(output_step)]) == self
            and not self.transforms
            and not self.has_static_kv
        )

    @property
    def needs_calibration(self) -> bool:
        """Whether the recipe needs the model's inputs on a text."""
        return (
            bool(self.transforms or self.cut_steps)
            or self.has_static_kv
            or any(step.needs_calibration for step in self.prune_steps)
            or any(
                step.quantizer.needs_hessian or step.spec.activations == "int8_static"
                for step in self.quantize_steps
            )
        )

    @property
    def stages(self) -> tuple["Stage", ...]:
        """The passes that the recipe takes, each from one folder to the next. A recovery ends a
        stage, and so does pruning where transforms follow: these look at the pruned layers. The
        last stage has `floats`, `kv_cache` and the training of the codes."""
        parts = list(_parts(self.steps))
        return tuple(
            Stage(
                cuts=tuple(step for step in part if isinstance(step, CutStep)),
                passes=Recipe(
                    name=self.name,
                    steps=tuple(
                        step
                        for step in part
                        if not isinstance(step, CutStep | RecoverStep | TrainStep)
                    ),
                    floats=self.floats if part is parts[-1] else None,
                    kv_cache=self.kv_cache if part is parts[-1] else None,
                ),
                recover=next((step for step in part if isinstance(step, RecoverStep)), None),
                train=next((step for step in part if isinstance(step, TrainStep)), None),
            )
            for part in parts
        )


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One pass of a recipe: the cuts, then what one walk does to the layers, then the recovery of
    floats or the training of codes."""

    cuts: tuple[CutStep, ...]
    passes: Recipe
    recover: RecoverStep | None
    train: TrainStep | None = None


def _may_follow(step: Step, after: Step) -> bool:
    if isinstance(step, RecoverStep):
        return not isinstance(after, RecoverStep)
    if isinstance(step, TrainStep):
        return False
    return _ORDER.index(type(step)) <= _ORDER.index(type(after))


def _parts(steps: tuple[Step, ...]) -> Iterator[list[Step]]:
    """Yields the steps of each stage; the last stage may have none."""
    part: list[Step] = []
    for step in steps:
        if isinstance(step, TransformStep) and any(isinstance(one, PruneStep) for one in part):
            yield part
            part = []
        part.append(step)
        if isinstance(step, RecoverStep):
            yield part
            part = []
    yield part
