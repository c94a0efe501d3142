"""The methods by the names that recipes call them."""

from paredown.compress.quantize.gptq import GPTQ
from paredown.compress.quantize.method import Quantizer, Transform
from paredown.compress.quantize.rtn import RTN

QUANTIZERS: dict[str, type[Quantizer]] = {
    "rtn": RTN,
    "gptq": GPTQ,
}
TRANSFORMS: dict[str, type[Transform]] = {}
