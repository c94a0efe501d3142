"""The measured models on disk, which are made on first use and then kept.

MODEL/bf16/                    the Hugging Face folder all others come from
MODEL/int4-g32-head-int8/      our compressed folders, named as their recipes
MODEL/q4_0-head-q8_0.gguf      GGUF files, named as their formats
MODEL/q4_k.gguf                all matrices in Q4_K by llama.cpp's own quantizer; we run it as it is
MODEL/q4_k_m.gguf              its mixture of that name
MODEL/file.gguf                a real model's own file, which all of us run as it is
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks.checkpoints.folder import write_random_checkpoint
from benchmarks.checkpoints.llama_quantizer import LlamaMixture, quantize_file
from benchmarks.checkpoints.shapes import CONFIGS
from paredown.compress.compress import compress
from paredown.compress.convert.gguf_mixture import GGUFFormats
from paredown.compress.convert.write_gguf import write_gguf
from paredown.errors import UnsupportedError
from paredown.formats.gguf.block_format import BlockFormat
from paredown.formats.gguf.table import BLOCK_FORMATS
from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model

# The GGUF format with as many bits: Q4_0 is 4-bit symmetric in groups of 32, Q8_0 8-bit.
GGUF_FORMATS: dict[str, BlockFormat] = {
    "bf16": BLOCK_FORMATS["BF16"],
    "int8": BLOCK_FORMATS["Q8_0"],
    "w8a8": BLOCK_FORMATS["Q8_0"],
    "int4-g32": BLOCK_FORMATS["Q4_0"],
    "w4a8-g32-qoq": BLOCK_FORMATS["Q4_0"],
}
SOURCE = "bf16"
PACKAGED = "default"
# Made by llama.cpp's own quantizer: its name of the mixture, and whether all matrices get the most
# common format.
LLAMA_FILES: dict[str, LlamaMixture] = {
    "q4_k": LlamaMixture(name="Q4_K_S", is_pure=True),
    "q4_k_m": LlamaMixture(name="Q4_K_M"),
    "q5_k_m": LlamaMixture(name="Q5_K_M"),
    "q6_k": LlamaMixture(name="Q6_K"),
    "q3_k_m": LlamaMixture(name="Q3_K_M"),
}
# An existing file with its own mixture of formats.
FILE = "file"
FloatFormat = Literal["bf16", "f16"]


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A model of CONFIGS, or the packaged one, with its linear layers in `format` and its output
    layer in `output_format`. The embedding, of which a token reads one row, stays bf16."""

    model: str
    format: str
    output_format: str = "bf16"

    @property
    def name(self) -> str:
        """Returns the recipe that makes it from the bf16 model."""
        head = "" if self.output_format == "bf16" else f"-head-{self.output_format}"
        return f"{self.format}{head}"


def bf16_folder(root: Path, model: str) -> Path:
    """Returns the Hugging Face folder of random weights, or the packaged model."""
    if model == PACKAGED:
        (root / model).mkdir(parents=True, exist_ok=True)
        return resolve_model(None)
    folder = root / model / SOURCE
    if not folder.exists():
        write_random_checkpoint(CONFIGS[model], folder)
    return folder


def paredown_folder(root: Path, variant: Variant) -> Path:
    """Returns the compressed folder, or llama.cpp's file where only llama.cpp makes that format.
    Raises UnsupportedError for formats that `compress` cannot write."""
    if variant.format in LLAMA_FILES or variant.format == FILE:
        return gguf_file(root, variant)
    source = bf16_folder(root, variant.model)
    if variant.format == SOURCE:
        return source
    folder = root / variant.model / variant.name
    if not folder.exists():
        compress(Checkpoint.open(source), folder, variant.name)
    return folder


def gguf_file(root: Path, variant: Variant, *, float_format: FloatFormat = "bf16") -> Path:
    """Returns the GGUF file, with `float_format` in place of bf16. Raises UnsupportedError for a
    format without a GGUF equivalent."""
    if variant.format == FILE:
        return root / variant.model / f"{FILE}.gguf"
    if variant.format in LLAMA_FILES:
        return _llama_file(root, variant)
    unknown = {variant.format, variant.output_format} - set(GGUF_FORMATS)
    if unknown:
        raise UnsupportedError(
            "GGUF has no such format",
            seen=", ".join(sorted(unknown)),
            remedy=f"Known formats: {', '.join(GGUF_FORMATS)}.",
        )
    source = bf16_folder(root, variant.model)
    floats = BLOCK_FORMATS["BF16" if float_format == "bf16" else "F16"]
    known = GGUF_FORMATS | {"bf16": floats}
    linear, output = known[variant.format], known[variant.output_format]
    path = root / variant.model / f"{linear.name}-head-{output.name}.gguf".lower()
    if not path.exists():
        formats = GGUFFormats(linear=linear, output=output, embedding=floats)
        write_gguf(Checkpoint.open(source), path, formats=formats)
    return path


def _llama_file(root: Path, variant: Variant) -> Path:
    mixture = LLAMA_FILES[variant.format]
    path = root / variant.model / f"{variant.format}.gguf"
    if not path.exists():
        quantize_file(gguf_file(root, Variant(model=variant.model, format=SOURCE)), path, mixture)
    return path
