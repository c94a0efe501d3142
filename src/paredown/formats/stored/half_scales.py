"""The scales of GPTQ and AWQ as fp16 numbers."""

import numpy as np
import numpy.typing as npt

from paredown.errors import UnsupportedError
from paredown.formats.grid_weight import GridWeight


def half_scales(weight: GridWeight) -> npt.NDArray[np.float16]:
    """Returns the scales [O, G]. Raises UnsupportedError for scales that are not fp16 numbers,
    since rounding them would change the weight."""
    assert weight.scales_OG is not None
    with np.errstate(over="ignore"):
        halves = weight.scales_OG.astype(np.float16)
    differing = halves.astype(np.float32) != weight.scales_OG
    if differing.any():
        raise UnsupportedError(
            "scales are not fp16 numbers, which this format needs",
            seen=f"{int(np.count_nonzero(differing))} of {differing.size} {weight.scale_dtype} "
            f"scales, {weight.scales_OG[differing][0]} among them",
            remedy="Convert to compressed-tensors, or compress the model in fp16.",
        )
    return halves
