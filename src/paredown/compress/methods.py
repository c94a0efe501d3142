"""The methods by their names in recipes."""

from paredown.compress.prune.given_mask import GivenMask
from paredown.compress.prune.low_gradient import LowGradient
from paredown.compress.prune.magnitude import Magnitude
from paredown.compress.prune.method import Pruner, Refinement
from paredown.compress.prune.obd import OBD
from paredown.compress.prune.obs import OBS
from paredown.compress.prune.refit import Refit
from paredown.compress.prune.sparse_swaps import SparseSwaps
from paredown.compress.prune.sparsegpt import SparseGPT
from paredown.compress.prune.taylor import Taylor
from paredown.compress.prune.wanda import Wanda
from paredown.compress.quantize.aqlm import AQLM
from paredown.compress.quantize.awq import AWQ
from paredown.compress.quantize.gptq import GPTQ
from paredown.compress.quantize.hqq import HQQ
from paredown.compress.quantize.llm_int8 import LLMInt8
from paredown.compress.quantize.method import Quantizer, Transform
from paredown.compress.quantize.rtn import RTN
from paredown.compress.quantize.smoothquant import SmoothQuant

QUANTIZERS: dict[str, type[Quantizer]] = {
    "rtn": RTN,
    "gptq": GPTQ,
    "hqq": HQQ,
    "aqlm": AQLM,
    "llm_int8": LLMInt8,
}
TRANSFORMS: dict[str, type[Transform]] = {
    "awq": AWQ,
    "smoothquant": SmoothQuant,
}
PRUNERS: dict[str, type[Pruner]] = {
    "magnitude": Magnitude,
    "taylor": Taylor,
    "low_gradient": LowGradient,
    "obd": OBD,
    "obs": OBS,
    "wanda": Wanda,
    "sparsegpt": SparseGPT,
    "given_mask": GivenMask,
}
REFINEMENTS: dict[str, type[Refinement]] = {"swaps": SparseSwaps, "refit": Refit}
