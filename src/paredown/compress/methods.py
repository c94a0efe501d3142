"""The methods by their names in recipes."""

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
