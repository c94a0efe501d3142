"""Recipes from YAML files (docs/guide/recipes.md):

    steps:
      - method: wanda                  # what removes: removal_document.py
        pattern: 50
      - method: smoothquant
        alpha: 0.5
      - method: gptq
        format: int4-g128              # a format's name, or its fields:
        act_order: true                # {dtype: int4, group_size: 128, symmetric: false}
      - method: rtn
        format: int8
        targets: [down, head]
      - method: qad                    # what trains the codes: train_document.py
        tokens: 300000
    floats: bf16
    kv_cache: int8

A step's other keys are its method's options. An unknown key or method is an error.
"""

from dataclasses import asdict, fields
from pathlib import Path
from typing import get_type_hints

import yaml

from paredown.compress.group_sizes import find_format, groups_name
from paredown.compress.methods import QUANTIZERS, TRANSFORMS
from paredown.compress.quantize.method import Quantizer, Transform
from paredown.compress.recipe import Recipe
from paredown.compress.recipe_values import (
    checked_value,
    configured,
    mapping,
    optional,
    refuse_unknown,
    wrong,
)
from paredown.compress.recipe_yaml import MAX_BYTES, RecipeYamlError, parse_yaml
from paredown.compress.removal_document import (
    REMOVALS,
    options_of,
    removal_document,
    removal_step,
)
from paredown.compress.steps import (
    LAYERS,
    CutStep,
    PruneStep,
    QuantizeStep,
    RecoverStep,
    Step,
    TrainStep,
    TransformStep,
)
from paredown.compress.train_document import TRAININGS, train_document, train_step
from paredown.errors import ConfigError
from paredown.files.named_file import read_named_file
from paredown.formats.table import RECIPE_FORMATS
from paredown.models.files.whole_file import whole_file
from paredown.spec.kv import KVFormat
from paredown.spec.weight import ScaleDType, WeightSpec


def read_recipe(path: Path) -> Recipe:
    """Reads the recipe in a file and names it after the file. Raises ConfigError, with the step
    and key."""
    try:
        document = parse_yaml(read_named_file(path, MAX_BYTES))
    except (OSError, RecipeYamlError) as error:
        raise ConfigError(
            f"the recipe {path} cannot be read",
            seen=error,
            remedy="Write YAML as docs/guide/recipes.md shows.",
        ) from error
    return parse_recipe(document, path.stem)


def parse_recipe(document: object, name: str) -> Recipe:
    """Builds a recipe as `read_recipe` does, from what YAML or JSON became."""
    parts = mapping(document, "the recipe")
    refuse_unknown(parts, ("steps", "floats", "kv_cache"), "the recipe")
    steps = parts.get("steps", [])
    if not isinstance(steps, list):
        raise wrong("steps", steps, "a list of steps")
    return Recipe(
        name=name,
        steps=tuple(_step(step, f"step {number + 1}") for number, step in enumerate(steps)),
        floats=optional(parts, "floats", ScaleDType),
        kv_cache=optional(parts, "kv_cache", KVFormat),
    )


def write_recipe(recipe: Recipe, path: Path) -> None:
    """Writes a file that `read_recipe` reads as the same recipe. Raises OutputError."""
    document: dict[str, object] = {"steps": [_step_document(step) for step in recipe.steps]}
    if recipe.floats is not None:
        document["floats"] = recipe.floats
    if recipe.kv_cache is not None:
        document["kv_cache"] = recipe.kv_cache
    text = yaml.safe_dump(document, sort_keys=False)
    with whole_file(path) as file:
        file.write(text.encode())


def _step_document(step: Step) -> dict[str, object]:
    if isinstance(step, CutStep | PruneStep | RecoverStep):
        return removal_document(step)
    if isinstance(step, TrainStep):
        return train_document(step)
    if isinstance(step, TransformStep):
        return {"method": _name_of(step.transform), **options_of(step.transform)}
    return {
        "method": _name_of(step.quantizer),
        "format": _format_document(step.spec, step.group_sizes),
        "targets": list(step.targets),
        **options_of(step.quantizer),
    }


def _name_of(method: Quantizer | Transform) -> str:
    known: dict[str, type] = {**QUANTIZERS, **TRANSFORMS}
    return next(name for name, kind in known.items() if kind is type(method))


def _format_document(spec: WeightSpec, group_sizes: tuple[int, ...]) -> object:
    if find_format(spec.name) == (spec, ()):
        offered = groups_name(group_sizes)
        return spec.name.replace(f"-g{spec.group_size}", offered) if offered else spec.name
    return asdict(spec)


def _step(document: object, where: str) -> Step:
    parts = dict(mapping(document, where))
    method = parts.pop("method", None)
    if isinstance(method, str) and method in REMOVALS:
        return removal_step(method, parts, where)
    if isinstance(method, str) and method in TRAININGS:
        return train_step(method, parts, where)
    if isinstance(method, str) and method in TRANSFORMS:
        return TransformStep(transform=configured(TRANSFORMS[method], parts, where))
    if not isinstance(method, str) or method not in QUANTIZERS:
        known = ", ".join([*REMOVALS, *TRANSFORMS, *QUANTIZERS, *TRAININGS])
        raise ConfigError(
            f"{where} names no known method", seen=method, remedy=f"Known methods: {known}."
        )
    if "format" not in parts:
        raise ConfigError(
            f"{where} does not say what its targets become",
            seen=", ".join(parts) or "no other keys",
            remedy="Add format: int4-g128, for one.",
        )
    spec, group_sizes = _format(parts.pop("format"), f"{where}, format")
    targets = parts.pop("targets", [LAYERS])
    if not (isinstance(targets, list) and targets and all(isinstance(t, str) for t in targets)):
        raise wrong(f"{where}, targets", targets, "a list of names")
    quantizer = configured(QUANTIZERS[method], parts, where)
    return QuantizeStep(
        quantizer=quantizer, spec=spec, targets=tuple(targets), group_sizes=group_sizes
    )


def _format(document: object, where: str) -> tuple[WeightSpec, tuple[int, ...]]:
    """Returns the format, with the group sizes to choose from, which only a name can have."""
    if isinstance(document, str):
        found = find_format(document)
        if found is None:
            raise ConfigError(
                f"{where} is not a known format",
                seen=document,
                remedy=f"Known: {', '.join(RECIPE_FORMATS)}; or give its fields.",
            )
        return found
    parts = mapping(document, where)
    refuse_unknown(parts, tuple(field.name for field in fields(WeightSpec)), where)
    hints = get_type_hints(WeightSpec)
    checked = {
        name: checked_value(value, hints[name], f"{where}, {name}") for name, value in parts.items()
    }
    if "dtype" not in checked:
        raise wrong(where, document, "fields with a dtype")
    if checked.get("group_size") is not None and checked["group_size"] < 1:
        raise wrong(f"{where}, group_size", parts["group_size"], "a number of columns")
    if checked["dtype"] == "fp8" and not checked.get("symmetric", True):
        raise wrong(f"{where}, symmetric", False, "true: fp8 has no zero points")
    stepped = checked.pop("integer_steps", False)
    plain = WeightSpec(**{**checked, "activations": "fp32"})
    if stepped and not plain.takes_integer_steps:
        raise wrong(f"{where}, integer_steps", True, "false: int4 groups alone have them")
    possible = plain.possible_activations
    if checked.get("activations", possible[0]) not in possible:
        raise wrong(f"{where}, activations", parts["activations"], f"one of {', '.join(possible)}")
    return WeightSpec(**checked, integer_steps=stepped), ()
