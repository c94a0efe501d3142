"""Recipes from YAML files (docs/guide/recipes.md):

    steps:
      - method: smoothquant
        alpha: 0.5
      - method: gptq
        format: int4-g128              # a format's name, or its fields:
        act_order: true                # {dtype: int4, group_size: 128, symmetric: false}
      - method: rtn
        format: int8
        targets: [down, head]
    floats: bf16
    kv_cache: int8

A step's other keys are its method's options. An unknown key or method is an error.
"""

from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import pydantic
import yaml

from paredown.compress.group_sizes import find_format, groups_name
from paredown.compress.methods import QUANTIZERS, TRANSFORMS
from paredown.compress.quantize.method import Quantizer, Transform
from paredown.compress.recipe import LAYERS, QuantizeStep, Recipe, TransformStep
from paredown.compress.recipe_yaml import MAX_BYTES, RecipeYamlError, parse_yaml
from paredown.errors import ConfigError
from paredown.files.named_file import read_named_file
from paredown.formats.table import RECIPE_FORMATS
from paredown.models.files.whole_file import whole_file
from paredown.shown import quoted
from paredown.spec.kv import KVFormat
from paredown.spec.weight import ScaleDType, WeightSpec

Method = TypeVar("Method", Quantizer, Transform)


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
    parts = _mapping(document, "the recipe")
    _refuse_unknown(parts, ("steps", "floats", "kv_cache"), "the recipe")
    steps = parts.get("steps", [])
    if not isinstance(steps, list):
        raise _wrong("steps", steps, "a list of steps")
    return Recipe(
        name=name,
        steps=tuple(_step(step, f"step {number + 1}") for number, step in enumerate(steps)),
        floats=_optional(parts, "floats", ScaleDType),
        kv_cache=_optional(parts, "kv_cache", KVFormat),
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


def _step_document(step: QuantizeStep | TransformStep) -> dict[str, object]:
    if isinstance(step, TransformStep):
        return {"method": _name_of(step.transform), **_options(step.transform)}
    return {
        "method": _name_of(step.quantizer),
        "format": _format_document(step.spec, step.group_sizes),
        "targets": list(step.targets),
        **_options(step.quantizer),
    }


def _name_of(method: Quantizer | Transform) -> str:
    known: dict[str, type] = {**QUANTIZERS, **TRANSFORMS}
    return next(name for name, kind in known.items() if kind is type(method))


def _options(method: Quantizer | Transform) -> dict[str, object]:
    """Returns the options that differ from the defaults."""
    return {
        field.name: getattr(method, field.name)
        for field in fields(method)  # type: ignore[arg-type]
        if getattr(method, field.name) != field.default
    }


def _format_document(spec: WeightSpec, group_sizes: tuple[int, ...]) -> object:
    if find_format(spec.name) == (spec, ()):
        offered = groups_name(group_sizes)
        return spec.name.replace(f"-g{spec.group_size}", offered) if offered else spec.name
    return asdict(spec)


def _step(document: object, where: str) -> QuantizeStep | TransformStep:
    parts = dict(_mapping(document, where))
    method = parts.pop("method", None)
    if isinstance(method, str) and method in TRANSFORMS:
        return TransformStep(transform=_configured(TRANSFORMS[method], parts, where))
    if not isinstance(method, str) or method not in QUANTIZERS:
        known = ", ".join([*TRANSFORMS, *QUANTIZERS])
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
        raise _wrong(f"{where}, targets", targets, "a list of names")
    quantizer = _configured(QUANTIZERS[method], parts, where)
    return QuantizeStep(
        quantizer=quantizer, spec=spec, targets=tuple(targets), group_sizes=group_sizes
    )


def _configured(method: type[Method], options: Mapping[str, object], where: str) -> Method:
    """Returns the method with these options, each checked against the type of its field."""
    hints = get_type_hints(method)
    known = tuple(field.name for field in fields(method))  # type: ignore[arg-type]
    _refuse_unknown(options, known, where)
    checked = {
        name: _checked(value, hints[name], f"{where}, {name}") for name, value in options.items()
    }
    return method(**checked)


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
    parts = _mapping(document, where)
    _refuse_unknown(parts, tuple(field.name for field in fields(WeightSpec)), where)
    hints = get_type_hints(WeightSpec)
    checked = {
        name: _checked(value, hints[name], f"{where}, {name}") for name, value in parts.items()
    }
    if "dtype" not in checked:
        raise _wrong(where, document, "fields with a dtype")
    if checked.get("group_size") is not None and checked["group_size"] < 1:
        raise _wrong(f"{where}, group_size", parts["group_size"], "a number of columns")
    if checked["dtype"] == "fp8" and not checked.get("symmetric", True):
        raise _wrong(f"{where}, symmetric", False, "true: fp8 has no zero points")
    stepped = checked.pop("integer_steps", False)
    plain = WeightSpec(**{**checked, "activations": "fp32"})
    if stepped and not plain.takes_integer_steps:
        raise _wrong(f"{where}, integer_steps", True, "false: int4 groups alone have them")
    possible = plain.possible_activations
    if checked.get("activations", possible[0]) not in possible:
        raise _wrong(f"{where}, activations", parts["activations"], f"one of {', '.join(possible)}")
    return WeightSpec(**checked, integer_steps=stepped), ()


def _optional(parts: Mapping[str, object], name: str, kind: Any) -> Any:
    return _checked(parts[name], kind, name) if name in parts else None


def _checked(value: object, kind: Any, where: str) -> Any:
    """Returns `value` if it has the type `kind`, else raises an error."""
    try:
        return pydantic.TypeAdapter(kind).validate_python(value, strict=True)
    except pydantic.ValidationError as error:
        expected = ", ".join(map(str, get_args(kind))) or getattr(kind, "__name__", str(kind))
        raise _wrong(where, value, expected) from error


def _mapping(document: object, where: str) -> Mapping[str, object]:
    if not isinstance(document, dict) or not all(isinstance(key, str) for key in document):
        raise _wrong(where, document, "keys and values")
    return document


def _refuse_unknown(parts: Mapping[str, object], known: tuple[str, ...], where: str) -> None:
    unknown = [key for key in parts if key not in known]
    if unknown:
        raise ConfigError(
            f"{where} has an unknown key",
            seen=", ".join(unknown),
            remedy=f"Known keys: {', '.join(known) or 'none'}.",
        )


def _wrong(where: str, value: object, expected: str) -> ConfigError:
    return ConfigError(f"{where} is not valid", seen=quoted(value), remedy=f"Give {expected}.")
