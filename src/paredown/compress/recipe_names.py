"""Recipes by name: [METHOD-]...FORMAT[-head-FORMAT][-embedding-FORMAT][-kv-DTYPE], such as
gptq-int4-g128-head-int8. Names of whole recipes (llm-int8) may replace [METHOD-]...FORMAT. What
is removed stands before all of that, and may stand alone (prune_names.py). What trains the codes
stands before METHOD or at the end (train_names.py)."""

from dataclasses import replace
from typing import cast, get_args

from paredown.compress.group_sizes import find_format
from paredown.compress.methods import QUANTIZERS, TRANSFORMS
from paredown.compress.prune_names import PRUNE_EXPLAINED, split_removals
from paredown.compress.quantize.aqlm import AQLM
from paredown.compress.quantize.llm_int8 import LLMInt8
from paredown.compress.quantize.method import Quantizer
from paredown.compress.quantize.rtn import RTN
from paredown.compress.quantize.smoothquant import SmoothQuant
from paredown.compress.recipe import Recipe
from paredown.compress.steps import (
    EMBEDDING,
    OUTPUT,
    QuantizeStep,
    TrainMethod,
    TransformStep,
)
from paredown.compress.train_names import TRAIN_EXPLAINED, split_training
from paredown.errors import ConfigError
from paredown.formats.table import FORMATS, GROUP_SIZES, STATIC_FORMATS
from paredown.spec.kv import KVFormat
from paredown.spec.weight import ScaleDType, WeightSpec

OUTPUT_MARK = f"-{OUTPUT}-"
EMBEDDING_MARK = f"-{EMBEDDING}-"
KV_MARK = "-kv-"
# LLM-QAT's own way to write what keys and values are kept in.
_SHORT_KV = {"-kv8": "-kv-int8", "-kv4": "-kv-int4"}


def _smoothquant_level(level: str, spec: WeightSpec) -> Recipe:
    """Returns a level of SmoothQuant (arXiv 2211.10438, table 2), with one scale for all rows of a
    weight. O2, with one dynamic scale for all inputs, has no stored form."""
    return Recipe(
        name=f"smoothquant-{level}",
        steps=(
            TransformStep(transform=SmoothQuant(per_tensor=True)),
            QuantizeStep(quantizer=RTN(per_tensor=True), spec=spec),
        ),
    )


def _one_step(name: str, quantizer: Quantizer, spec: WeightSpec) -> Recipe:
    return Recipe(name=name, steps=(QuantizeStep(quantizer=quantizer, spec=spec),))


# Recipes that are more than methods and a format.
NAMED: dict[str, Recipe] = {
    "llm-int8": _one_step("llm-int8", LLMInt8(), FORMATS["int8"]),
    "smoothquant-o1": _smoothquant_level("o1", FORMATS["w8a8"]),
    "smoothquant-o3": _smoothquant_level("o3", STATIC_FORMATS["w8a8-static"]),
    # The paper's setting for CPUs, and one with codebooks small enough for small layers.
    "aqlm-2x8-g8": _one_step("aqlm-2x8-g8", AQLM(), FORMATS["fp16"]),
    "aqlm-1x8-g4": _one_step(
        "aqlm-1x8-g4", AQLM(num_codebooks=1, in_group_size=4), FORMATS["fp16"]
    ),
}

# For the help of every command that takes recipes.
SYNTAX = "[METHOD-]FORMAT[-head-FORMAT][-embedding-FORMAT][-kv-DTYPE]"
EXPLAINED = f"""recipes by name: {SYNTAX}
  FORMAT  integers of 1 to 8 bits, one scale per row or per group of columns
          ({", ".join(map(str, GROUP_SIZES))}): int8, int4-g128, int3-g32-asym (with zero points);
          int4-g128-g64-g32 gives each layer the largest groups that divide its columns;
          with inputs in 8 bits too: w8a8, w8a8-static, w4a8, w4a8-g128; with scales that are
          integer steps of their row's, fast prompts too: w4a8-g32-qoq, w4a8-g128-asym-qoq;
          floats: fp8, fp8-g128, bf16, fp16, fp32;
          integers may end in what their inputs are rounded to, of
          {", ".join(WeightSpec(dtype="int8").free_activations)}: int4-g64-on-int16_group
  METHOD  how codes are found: rtn (where none is named), gptq, hqq;
          what goes before: awq, smoothquant, as in awq-gptq-int4-g128
  -head-  the output layer too: gptq-int4-g128-head-int8; of an encoder its head: int8-head-int8
  -embedding-  the table of embeddings too: int8-head-int8-embedding-int8
  -kv-    how a server keeps keys and values: {", ".join(get_args(KVFormat))}
  whole recipes, in the place of [METHOD-]FORMAT:
          {", ".join(NAMED)}
{PRUNE_EXPLAINED}{TRAIN_EXPLAINED}"""


def find_recipe(name: str) -> Recipe:
    """Returns the recipe of that name. Raises ConfigError, or UnsupportedError for a format that
    its method does not make."""
    if name in NAMED:
        return NAMED[name]
    removals, rest = split_removals(name)
    if removals:
        kept = find_recipe(rest) if rest else Recipe(name=name)
        return replace(kept, name=name, steps=(*removals, *kept.steps))
    training = split_training(name)
    if training is not None:
        step, rest = training
        start = find_recipe(_with_quantizer(rest, step.method))
        if any(one != RTN() for one in _quantizers(start)) and step.method == "llm_qat":
            step = replace(step, rule="learned")
        return replace(start, name=name, steps=(*start.steps, step))
    body, kv_cache = _split_kv(name)
    body, has_table, table = body.partition(EMBEDDING_MARK)
    linear, separator, head = body.partition(OUTPUT_MARK)
    base = NAMED[linear] if linear in NAMED else _methods_and_format(linear)
    steps = base.steps
    if separator:
        quantizers = _quantizers(base)
        steps += (_table_step(OUTPUT, head, quantizers[-1] if quantizers else RTN(), name),)
    if has_table:
        steps += (_table_step(EMBEDDING, table, RTN(), name),)
    return Recipe(name=name, steps=steps, floats=base.floats, kv_cache=kv_cache)


def _quantizers(recipe: Recipe) -> list[Quantizer]:
    return [step.quantizer for step in recipe.quantize_steps]


def _with_quantizer(name: str, method: TrainMethod) -> str:
    """Returns the name of the recipe whose codes are trained: with GPTQ where no method is named.
    LLM-QAT starts from rounded weights, as its authors do."""
    if name in NAMED or method in ("llm_qat", "scales"):
        return name
    methods, form = _split_methods(name)
    return name if QUANTIZERS.keys() & methods else "-".join([*methods, "gptq", form])


def _methods_and_format(name: str) -> Recipe:
    methods, format_name = _split_methods(name)
    spec, group_sizes = _find_format(format_name)
    if not spec.is_quantized:
        if methods:
            raise ConfigError(
                "a method needs a quantized format",
                seen=name,
                remedy="gptq-int4-g128, for one; floats are named alone (bf16), codebooks as "
                "aqlm-2x8-g8.",
            )
        return Recipe(name=name, floats=cast("ScaleDType", spec.dtype))
    transforms = [TRANSFORMS[method]() for method in methods if method in TRANSFORMS]
    quantizers: list[Quantizer] = [QUANTIZERS[one]() for one in methods if one in QUANTIZERS]
    return Recipe(
        name=name,
        steps=(
            *(TransformStep(transform=transform) for transform in transforms),
            QuantizeStep(
                quantizer=quantizers[0] if quantizers else RTN(), spec=spec, group_sizes=group_sizes
            ),
        ),
    )


def _table_step(target: str, form: str, quantizer: Quantizer, name: str) -> QuantizeStep:
    """Builds a step for the output layer or the embedding."""
    spec, group_sizes = _find_format(form)
    if not spec.is_quantized:
        raise ConfigError(
            f"-{target}- must be followed by a quantized format",
            seen=name,
            remedy=f"Without -{target}- that layer keeps its floats; give int8, for one.",
        )
    return QuantizeStep(quantizer=quantizer, spec=spec, targets=(target,), group_sizes=group_sizes)


def _split_kv(name: str) -> tuple[str, KVFormat | None]:
    for short, whole in _SHORT_KV.items():
        if name.endswith(short):
            name = f"{name.removesuffix(short)}{whole}"
    body, separator, form = name.rpartition(KV_MARK)
    if not separator:
        return name, None
    if form not in get_args(KVFormat):
        raise ConfigError(
            "there is no such format of keys and values",
            seen=name,
            remedy=f"Known: {', '.join(get_args(KVFormat))}.",
        )
    return body, cast("KVFormat", form)


def _split_methods(name: str) -> tuple[list[str], str]:
    """Splits off the methods before a format's name, in their order: transforms, then one
    quantizer."""
    methods: list[str] = []
    rest = name
    while True:
        method, separator, after = rest.partition("-")
        if not separator or not (method in TRANSFORMS or method in QUANTIZERS):
            break
        methods.append(method)
        rest = after
    if len(set(methods)) < len(methods):
        raise ConfigError("a method is named twice", seen=name, remedy="Name it once.")
    quantizers = [method for method in methods if method in QUANTIZERS]
    if len(quantizers) > 1 or (quantizers and methods[-1] != quantizers[0]):
        raise ConfigError(
            "a recipe has one quantizer, after its transforms",
            seen=name,
            remedy="Write awq-gptq-int4-g128, for one; several quantizers need a recipe file.",
        )
    return methods, rest


def _find_format(name: str) -> tuple[WeightSpec, tuple[int, ...]]:
    """Returns the format, with the group sizes to choose from."""
    found = find_format(name)
    if found is None and name.startswith("mixed-"):
        raise ConfigError(
            "widths of a mixed recipe are measured first",
            seen=name,
            remedy=f"Use `paredown optimize --formats {name}`, or write the recipe with "
            "`paredown mixed -o mixed.yaml` and give that file.",
        )
    if found is None:
        raise ConfigError(
            "there is no such format",
            seen=name,
            remedy=f"Name one as {SYNTAX}: int4-g128, gptq-int3-g64, or "
            f"{', '.join(NAMED)} (paredown compress --help).",
        )
    return found
