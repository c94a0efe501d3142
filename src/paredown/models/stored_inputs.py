"""The folder's own choice of how inputs of linear layers are rounded, where the formats leave it
open. It is a field of config.json that other programs ignore.

    "paredown": {"activations": {"int16_group": "all"}}
    "paredown": {"activations": {"bf16": ["model.layers.0.mlp.down_proj", ...]}}
"""

from collections.abc import Mapping
from typing import cast, get_args

from paredown.errors import CheckpointError
from paredown.models.paredown_section import (
    ACTIVATIONS,
    SECTION,
    read_section,
    section_error,
    with_key,
)
from paredown.spec.weight import ActivationDType, WeightSpec

_ALL = "all"


def stored_inputs(
    config: Mapping[str, object], specs: Mapping[str, WeightSpec]
) -> dict[str, ActivationDType]:
    """Returns by module what its inputs are rounded to, where that is not what the format says.
    `specs` holds the modules that are stored as codes and have inputs. Raises CheckpointError for
    an unknown field, for a module outside `specs`, and for inputs that the weight does not take."""
    asked = read_section(config).get(ACTIVATIONS)
    if asked is None:
        return {}
    if not isinstance(asked, dict):
        raise _unknown(f"{SECTION}.{ACTIVATIONS} is not an object", asked)
    found: dict[str, ActivationDType] = {}
    for activations, modules in asked.items():
        where = f"{SECTION}.{ACTIVATIONS}.{activations}"
        if activations not in get_args(ActivationDType):
            raise _unknown(f"{where} is none of {', '.join(get_args(ActivationDType))}", asked)
        takes = [name for name, spec in specs.items() if activations in spec.free_activations]
        if modules == _ALL:
            modules = takes
        if modules == []:
            raise _unknown(f"{where} names no module that reads such inputs", asked)
        if not isinstance(modules, list) or not all(isinstance(one, str) for one in modules):
            raise _unknown(f'{where} is neither "{_ALL}" nor a list of modules', modules)
        if strangers := [name for name in modules if name not in takes or name in found]:
            raise _unknown(f"{where} names modules that cannot read such inputs", strangers[:3])
        found |= dict.fromkeys(modules, cast("ActivationDType", activations))
    return found


def with_stored_inputs(
    config: Mapping[str, object],
    inputs: Mapping[str, ActivationDType],
    specs: Mapping[str, WeightSpec],
) -> dict[str, object]:
    """Returns the config with these `inputs` in place of any others; `specs` is as in
    `stored_inputs`."""
    if not inputs:
        return with_key(config, ACTIVATIONS, None)
    asked: dict[str, object] = {}
    for activations in dict.fromkeys(inputs.values()):
        modules = [name for name, own in inputs.items() if own == activations]
        takes = [name for name, spec in specs.items() if activations in spec.free_activations]
        asked[activations] = _ALL if set(modules) == set(takes) else modules
    return with_key(config, ACTIVATIONS, asked)


def _unknown(what: str, seen: object) -> CheckpointError:
    return section_error(what, seen, ": inputs are read as the formats say then")
