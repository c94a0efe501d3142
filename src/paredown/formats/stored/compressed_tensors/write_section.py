"""Writes compressed-tensors' section of config.json."""

from collections.abc import Iterable, Mapping

from paredown.errors import UnsupportedError
from paredown.formats.stored.compressed_tensors.form import form_of
from paredown.formats.stored.compressed_tensors.read_section import LINEAR, METHOD
from paredown.formats.stored.stored_format import Layout
from paredown.spec.weight import WeightSpec

MIXED = "mixed-precision"


def write_section(layout: Layout[WeightSpec]) -> dict[str, object]:
    """Builds the section: the common form applies to every linear module, and others are named.
    Raises UnsupportedError for a mixture that Transformers cannot read."""
    table = layout.embedding if layout.embedding in layout.specs else None
    named = {
        module: own
        for module, own in layout.specs.items()
        if own != layout.common and module != table
    }
    # Without a common form, modules that are not named need not be ignored.
    ignore = layout.others if layout.common is None else layout.all_floats
    section = quantization_config(layout.common, ignore, named, layout.kv)
    return section if table is None else _with_table(section, table, layout.specs[table])


def _with_table(section: dict[str, object], module: str, spec: WeightSpec) -> dict[str, object]:
    """Adds a group for the table of embeddings, whose inputs are not floats to be rounded."""
    groups = section["config_groups"]
    assert isinstance(groups, dict)
    own = {**_group(spec, [module]), "input_activations": None}
    forms = {group["format"] for group in groups.values()} | {own["format"]}
    return {
        **section,
        "format": section["format"] if len(forms) == 1 else MIXED,
        "config_groups": {**groups, f"group_{len(groups)}": own},
    }


def quantization_config(
    spec: WeightSpec | None,
    ignore: Iterable[str],
    named: Mapping[str, WeightSpec] | None = None,
    kv: Mapping[str, object] | None = None,
) -> dict[str, object]:
    """Builds the section. Every linear module except those in `ignore` has the form `spec` (None:
    none has), and the modules in `named` have their own. `kv` says how keys and values are kept.
    Modules of one form share a config group. Raises UnsupportedError for a mixture that
    Transformers cannot read."""
    targets: dict[WeightSpec, list[str]] = {} if spec is None else {spec: [LINEAR]}
    for module, own in (named or {}).items():
        if own != spec:
            targets.setdefault(own, []).append(module)
    check_mixture(targets)
    forms = {form_of(spec) for spec in targets}
    # Transformers 5.23 allocates unpacked zero points and drops the packed ones, unless it is told
    # to dequantize while it loads.
    dequantize = {} if all(spec.symmetric for spec in targets) else {"dequantize": True}
    return {
        "quant_method": METHOD,
        "format": forms.pop() if len(forms) == 1 else MIXED,
        "quantization_status": "compressed",
        "config_groups": {
            f"group_{number}": _group(own, modules)
            for number, (own, modules) in enumerate(targets.items())
        },
        "ignore": list(ignore),
        "kv_cache_scheme": kv,
        "global_compression_ratio": None,
        "sparsity_config": {},
        "transform_config": {},
        **dequantize,
    }


def check_mixture(specs: Iterable[WeightSpec]) -> None:
    """Raises UnsupportedError for a mixture that Transformers cannot read. Version 5.23 reads
    packed zero points only while it dequantizes, and then takes the first format of config.json
    for every module."""
    different = list(dict.fromkeys(specs))
    if len(different) > 1 and not all(spec.symmetric for spec in different):
        raise UnsupportedError(
            "formats of which one is asymmetric cannot be told apart by Transformers",
            seen=", ".join(spec.name for spec in different),
            remedy="Use one format for all linear layers, or symmetric ones.",
        )


def _group(spec: WeightSpec, targets: list[str]) -> dict[str, object]:
    weights: dict[str, object] = {
        "num_bits": spec.bits,
        "type": "int" if spec.is_integer else "float",
        "symmetric": spec.symmetric,
        "strategy": "channel" if spec.group_size is None else "group",
        "group_size": spec.group_size,
        "dynamic": False,
    }
    return {
        "targets": targets,
        "format": form_of(spec),
        "weights": weights,
        "input_activations": _input_arguments(spec),
        "output_activations": None,
    }


def _input_arguments(spec: WeightSpec) -> dict[str, object] | None:
    """Returns the arguments for inputs; None where the library should not round inputs."""
    if not spec.has_input_scheme:
        return None
    dynamic = spec.activations == "int8_row"
    return {
        "num_bits": 8,
        "type": "int",
        "symmetric": True,
        "strategy": "token" if dynamic else "tensor",
        "dynamic": dynamic,
    }
