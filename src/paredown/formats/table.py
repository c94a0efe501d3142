"""The formats a model can be compressed to, by name."""

from itertools import product

from paredown.spec.weight import INTEGERS, WeightSpec

GROUP_SIZES = (32, 64, 128)

FORMATS: dict[str, WeightSpec] = {
    spec.name: spec
    for spec in (
        WeightSpec(dtype="fp32"),
        WeightSpec(dtype="bf16"),
        WeightSpec(dtype="fp16"),
        WeightSpec(dtype="fp8"),
        WeightSpec(dtype="fp8", group_size=128),
        WeightSpec(dtype="int8", activations="int8_row"),
        WeightSpec(dtype="int4", activations="int8_row"),
        *(
            WeightSpec(dtype="int4", group_size=group_size, activations="int8_row")
            for group_size in GROUP_SIZES
        ),
        *(
            WeightSpec(dtype=dtype, group_size=group_size, symmetric=symmetric)
            for dtype, group_size, symmetric in product(
                INTEGERS, (None, *GROUP_SIZES), (True, False)
            )
            # By compressed-tensors' convention every weight would become 0 (docs/guide/formats.md).
            if symmetric is False or dtype != "int1"
        ),
    )
}

# Formats that a weight alone does not determine: the inputs' scale comes from calibration.
STATIC_FORMATS: dict[str, WeightSpec] = {
    spec.name: spec for spec in (WeightSpec(dtype="int8", activations="int8_static"),)
}

# Formats whose scales are searched row by row (compress/progressive_groups.py). They are written as
# the same formats without "-qoq".
STEP_FORMATS: dict[str, WeightSpec] = {
    spec.name: spec
    for spec in (
        WeightSpec(
            dtype="int4",
            group_size=group_size,
            symmetric=symmetric,
            activations="int8_row",
            integer_steps=True,
        )
        for group_size, symmetric in product(GROUP_SIZES, (True, False))
    )
}

# All formats that a weight may run in when its cost is asked.
COSTED_FORMATS = FORMATS | STEP_FORMATS

# All formats that a recipe may name.
RECIPE_FORMATS = FORMATS | STATIC_FORMATS | STEP_FORMATS
