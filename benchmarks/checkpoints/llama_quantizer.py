"""Runs llama.cpp's own quantizer, for formats that we do not write."""

from dataclasses import dataclass
from pathlib import Path

from paredown.errors import OutputError


@dataclass(frozen=True, kw_only=True)
class LlamaMixture:
    """A mixture of formats by llama.cpp's name, as in Q4_K_M. `is_pure` gives all matrices the
    format of most of them, the table of embeddings too."""

    name: str
    is_pure: bool = False


def quantize_file(source: Path, target: Path, mixture: LlamaMixture) -> None:
    """Quantizes the GGUF file `source`. Appears whole or not at all. Raises OutputError."""
    import llama_cpp  # a peer, which takes minutes to install

    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{mixture.name}")
    params.pure = mixture.is_pure
    part = target.with_suffix(".part")
    if llama_cpp.llama_model_quantize(str(source).encode(), str(part).encode(), params):
        part.unlink(missing_ok=True)
        raise OutputError(
            "llama.cpp cannot quantize this file", seen=str(source), remedy="See what it printed."
        )
    part.replace(target)
