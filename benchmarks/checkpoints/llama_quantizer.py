"""llama.cpp's own quantizer: formats that are not written here."""

from pathlib import Path

from paredown.errors import OutputError


def quantize_file(source: Path, target: Path) -> None:
    """All matrices of the GGUF file `source` in Q4_K, the table of embeddings among them. Appears
    whole or not at all. Raises OutputError."""
    import llama_cpp  # a peer, which takes minutes to install

    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_K_S
    params.pure = True
    part = target.with_suffix(".part")
    if llama_cpp.llama_model_quantize(str(source).encode(), str(part).encode(), params):
        part.unlink(missing_ok=True)
        raise OutputError(
            "llama.cpp cannot quantize this file", seen=str(source), remedy="See what it printed."
        )
    part.replace(target)
