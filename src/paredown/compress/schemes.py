"""Resolves a recipe against a checkpoint, before any work: the scheme of each linear layer."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from paredown.compress.group_sizes import groups_name
from paredown.compress.quantize.method import Quantizer
from paredown.compress.recipe import Recipe
from paredown.compress.steps import EMBEDDING, OUTPUT
from paredown.compress.targets import LinearModule, Targets, linear_modules
from paredown.errors import ConfigError, UnsupportedError, naming
from paredown.formats.stored.table import written_format
from paredown.formats.table import FORMATS
from paredown.formats.weight import StoredSpec
from paredown.models.checkpoint import Checkpoint
from paredown.spec.experts import EXPERTS, SHARED, expert_index, role_kind, split_role
from paredown.spec.roles import CROSS_ROLES
from paredown.spec.weight import WeightSpec
from paredown.units import format_ranges

# The roles as people write them, in the order of the data.
_MLP_ROLES = ("gate", "up", "down")
_ROLES = (
    *("q", "k", "v", "o", *CROSS_ROLES, *_MLP_ROLES, "router"),
    *(f"{EXPERTS}.{role}" for role in _MLP_ROLES),
    *("shared_gate", *(f"{SHARED}.{role}" for role in _MLP_ROLES), OUTPUT, EMBEDDING),
)
_AS_IT_IS = ("", "as it is")
# The format of an embedding. Transformers 5.23 loads it only if the codes are a tensor of their
# own, as for weights with 8-bit inputs, not if they are packed.
TABLE_SPEC = FORMATS["w8a8"]


@dataclass(frozen=True, kw_only=True)
class Scheme:
    """The target format of one linear module, and the method that makes it."""

    quantizer: Quantizer
    spec: WeightSpec

    @property
    def needs_inputs(self) -> bool:
        """Whether the method needs the module's inputs."""
        return self.quantizer.needs_hessian or self.spec.activations == "int8_static"

    @property
    def stored(self) -> StoredSpec:
        """The form of the written weight, without inputs that no format can store."""
        made = self.quantizer.stored_spec(self.spec)
        return made.as_stored if isinstance(made, WeightSpec) else made

    @property
    def format(self) -> str:
        return self.quantizer.stored_spec(self.spec).name

    @property
    def method(self) -> str:
        return type(self.quantizer).__name__


@dataclass(frozen=True, kw_only=True)
class SchemeRow:
    """Modules that share a scheme: `roles` of `layers` ("0-23", "0, 2-5", or "" for the head).
    "experts.gate" covers all experts, "experts.0-3.gate" some. Routers are listed because they
    stay unchanged."""

    layers: str
    roles: str
    method: str
    format: str
    num_modules: int


def resolve_schemes(recipe: Recipe, source: Checkpoint) -> dict[str, Scheme]:
    """Returns the schemes by module name, in the order of the model, without modules that stay in
    floats. Raises ConfigError for a target that matches nothing or is fully overridden,
    UnsupportedError for a format that a module cannot have."""
    modules = linear_modules(source)
    targets = Targets(modules)
    columns = {module.name: module.shape[1] for module in modules}
    schemes: dict[str, Scheme] = {}
    owners: dict[str, int] = {}
    for number, step in enumerate(recipe.quantize_steps):
        names = targets.matching(step.targets)
        # Formats with zero points cannot be mixed, so all modules share one size.
        shared = None if step.spec.symmetric else math.gcd(*(columns[name] for name in names))
        for name in names:
            if name == source.names.embedding and step.spec == FORMATS["int8"]:
                schemes[name] = Scheme(quantizer=step.quantizer, spec=TABLE_SPEC)
                owners[name] = number
                continue
            spec = step.spec_for(shared or columns[name])
            schemes[name] = Scheme(quantizer=step.quantizer, spec=spec)
            owners[name] = number
    for number, step in enumerate(recipe.quantize_steps):
        if number not in owners.values():
            raise ConfigError(
                "a later step takes every module of this one",
                seen=f"step with targets {', '.join(step.targets)} in recipe {recipe.name}",
                remedy="Remove it, or put it after the other.",
            )
    for module in modules:
        if module.name in schemes:
            _check(module, schemes[module.name], source)
    _check_embedding(schemes, source)
    _check_mixture(recipe, list(schemes.values()))
    return {module.name: schemes[module.name] for module in modules if module.name in schemes}


def resolved_name(recipe: Recipe, schemes: Mapping[str, Scheme]) -> str:
    """Returns the recipe's name with the group sizes that layers have, if it offers several:
    gptq-int4-g128-g64-g32 becomes gptq-int4-g64 for a model whose layers all have g64."""
    name, start = recipe.name, 0
    for step in recipe.quantize_steps:
        offered = groups_name(step.group_sizes)
        at = name.find(offered, start) if offered else -1
        if at < 0:
            continue
        found = {
            scheme.spec.group_size
            for scheme in schemes.values()
            if replace(scheme.spec, group_size=step.spec.group_size) == step.spec
        }
        kept = groups_name([size for size in step.group_sizes if size in found])
        name, start = name[:at] + kept + name[at + len(offered) :], at + len(kept)
    return name


def scheme_rows(schemes: Mapping[str, Scheme], source: Checkpoint) -> list[SchemeRow]:
    """Returns the resolved table in the form that people read."""
    places_of: dict[tuple[str, str, str], list[tuple[int | None, int | None]]] = {}
    for module in linear_modules(source):
        scheme = schemes.get(module.name)
        if scheme is None and (module.roles == (EMBEDDING,) or module.is_head):
            continue
        method, form = _AS_IT_IS if scheme is None else (scheme.method, scheme.format)
        kind = ", ".join(map(role_kind, module.roles))
        places = places_of.setdefault((kind, method, form), [])
        places.append((module.layer, expert_index(module.roles[0])))
    for layer in range(source.spec.num_layers):
        for role in source.spec.router_shapes(layer):
            places_of.setdefault((role, *_AS_IT_IS), []).append((layer, None))
    rows: dict[tuple[str, str, str], SchemeRow] = {}
    ordered = sorted(places_of.items(), key=lambda item: _place_of(item[0][0].split(", ")[0]))
    for (kind, method, form), places in ordered:
        layers = sorted({layer for layer, _ in places if layer is not None})
        key = format_ranges(layers), method, form
        role, before = _title(kind, places, source), rows.get(key)
        rows[key] = SchemeRow(
            layers=key[0],
            roles=role if before is None else f"{before.roles}, {role}",
            method=method,
            format=form,
            num_modules=len(places) + (0 if before is None else before.num_modules),
        )
    return list(rows.values())


def _place_of(role: str) -> int:
    """Returns the place of a role among those that people read; steps of a head stand together."""
    return _ROLES.index(OUTPUT if role.startswith(f"{OUTPUT}.") else role)


def _title(kind: str, places: list[tuple[int | None, int | None]], source: Checkpoint) -> str:
    """Returns the kind of a role, with the experts if not all have it."""
    chosen = sorted({expert for _, expert in places if expert is not None})
    nums = [layer.experts.num for layer in source.spec.layer_counts if layer.experts is not None]
    if not chosen or len(chosen) == max(nums):
        return kind
    return f"{EXPERTS}.{format_ranges(chosen)}.{split_role(kind)[1]}"


def _check(module: LinearModule, scheme: Scheme, source: Checkpoint) -> None:
    if module.transposed:
        raise UnsupportedError(
            f"{scheme.format} cannot be stored for {source.spec.family}: its linear layers are "
            "transposed modules, which compressed-tensors does not know",
            seen=f"transposed: {module.roles[0]}",
            remedy="Use a float format (bf16, fp16).",
        )
    if module.is_head and scheme.needs_inputs:
        raise UnsupportedError(
            "calibration does not look at the inputs of a head",
            seen=f"{scheme.method}, {scheme.format} for {module.name}",
            remedy="Round it to nearest, with inputs as they come: a step of its own in a recipe "
            "file (method: rtn, format: int8, targets: [head]).",
        )
    with naming(f"tensor {module.name}.weight"):
        written_format(scheme.stored).check(scheme.stored, module.shape)


def _check_embedding(schemes: Mapping[str, Scheme], source: Checkpoint) -> None:
    """Raises UnsupportedError for a table that the output layer needs in floats, and for a method
    that needs its inputs."""
    scheme = schemes.get(source.names.embedding)
    if scheme is None:
        return
    if scheme.spec != TABLE_SPEC:
        raise UnsupportedError(
            "a table of embeddings is stored in int8 with a scale for each row",
            seen=scheme.format,
            remedy="Write -embedding-int8, or leave it in floats.",
        )
    if source.spec.is_tied and source.names.output not in schemes:
        raise UnsupportedError(
            "the embedding is the output layer too, which stays in floats",
            seen=f"{source.names.embedding} in {scheme.format}",
            remedy="Quantize the output layer too: int8-head-int8-embedding-int8, for one.",
        )
    if scheme.needs_inputs:
        raise UnsupportedError(
            "the embedding has no inputs to look at",
            seen=f"{scheme.method} for {source.names.embedding}",
            remedy="Round it to nearest (method: rtn).",
        )


def _check_mixture(recipe: Recipe, schemes: list[Scheme]) -> None:
    """Raises UnsupportedError for formats that one section of config.json cannot distinguish."""
    specs = list(dict.fromkeys(scheme.stored for scheme in schemes))
    written = {written_format(spec).method for spec in specs}
    if len(written) > 1:
        raise UnsupportedError(
            f"formats of {' and '.join(sorted(written))} cannot be stored beside each other",
            seen=f"{recipe.name}: {', '.join(spec.name for spec in specs)}",
            remedy="Use one format for all.",
        )
    for spec in specs[:1]:
        written_format(spec).check_mixture(specs)
