"""The cuts by their names in recipes."""

from paredown.compress.cut.experts import CutExperts
from paredown.compress.cut.ffn import CutNeurons
from paredown.compress.cut.heads import CutHeads
from paredown.compress.cut.layers import CutLayers
from paredown.compress.cut.method import Cut

CUTS: dict[str, type[Cut]] = {
    "ffn": CutNeurons,
    "heads": CutHeads,
    "layers": CutLayers,
    "experts": CutExperts,
}
