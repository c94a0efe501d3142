"""The type of each tensor in a GGUF file: one for all, or one of llama.cpp's mixtures, in which
the tensors that lose most get more bits (llama_tensor_get_type, src/llama-quant.cpp)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from paredown.errors import UnsupportedError
from paredown.formats.gguf import q4_0, q4_k, q5_0, q5_k, q6_k, q8_0
from paredown.formats.gguf.block_format import BlockFormat
from paredown.formats.gguf.floats import BF16, F16
from paredown.formats.gguf.with_minimum import Q5_1
from paredown.models.gguf.names import GGUFTensor
from paredown.spec.model import ModelSpec

Q4_K, Q5_K, Q6_K, Q8_0 = q4_k.FORMAT, q5_k.FORMAT, q6_k.FORMAT, q8_0.FORMAT

# The replacements for super-blocks if the columns are not a multiple of 256.
_FALLBACKS: Mapping[str, BlockFormat] = {"Q4_K": q5_0.FORMAT, "Q5_K": Q5_1, "Q6_K": Q8_0}
# In models of this shape, Llama 2 and 3 with 70 billion weights, eight heads share values.
_LAYERS_OF_70B = 80

# In models with this many experts attention is a small part.
_FEW_EXPERTS = 8
_BESIDE_FEW_EXPERTS: Mapping[str, BlockFormat] = {
    "attn_v": Q8_0,
    "attn_k": Q8_0,
    "attn_output": Q5_K,
}

# The type of a tensor of layer i of n, in place of the mixture's own, by the part of its name after
# the layer; None keeps the mixture's.
_Rule = Callable[[int, int], BlockFormat | None]


@dataclass(frozen=True, kw_only=True)
class GGUFFormats:
    """The types of a file's tensors.

    `linear`         of the linear layers
    `output`         of the output layer
    `embedding`      of the table of embeddings; in a mixture a tied one has the output layer's
    `rules`          which layers get more bits, for the tensors that have such a rule
    `file_type`      llama.cpp's number for such a file; None is that of most of its tensors
    """

    linear: BlockFormat
    output: BlockFormat
    embedding: BlockFormat
    rules: Mapping[str, _Rule] | None = None
    file_type: int | None = None

    @property
    def is_mixture(self) -> bool:
        """Whether types follow llama.cpp's rules, and rows are fitted by the importance of
        columns."""
        return self.rules is not None

    @property
    def unties(self) -> bool:
        """Whether a tied table of embeddings is written a second time, as output layer."""
        return not self.is_mixture and self.output != self.embedding

    def block(self, tensor: GGUFTensor, spec: ModelSpec) -> BlockFormat:
        """Returns the type of a matrix. Raises UnsupportedError if it does not divide the columns
        and has no replacement."""
        wanted = self._wanted(tensor, spec)
        if tensor.shape[-1] % wanted.block_columns and self.is_mixture:
            wanted = _FALLBACKS.get(wanted.name, wanted)
        if tensor.shape[-1] % wanted.block_columns:
            raise UnsupportedError(
                f"{tensor.our_name}: {wanted.name} does not fit this weight",
                seen=f"{tensor.shape[-1]} columns in blocks of {wanted.block_columns}",
                remedy="Use gguf-bf16 or gguf-f16.",
            )
        return wanted

    def _wanted(self, tensor: GGUFTensor, spec: ModelSpec) -> BlockFormat:
        if tensor.role == "output":
            return self.output
        if tensor.role == "embedding":
            is_output = self.is_mixture and spec.is_tied
            return self.output if is_output else self.embedding
        if self.rules is None or tensor.layer is None:
            return self.linear
        # Experts have the rule of the MLP that they replace.
        place = tensor.name.split(".")[2].removesuffix("_exps").removesuffix("_shexp")
        experts = spec.layers[tensor.layer].experts
        if experts is not None and experts.num == _FEW_EXPERTS and place in _BESIDE_FEW_EXPERTS:
            return max(_BESIDE_FEW_EXPERTS[place], self.linear, key=_bits)
        rule = self.rules.get(place)
        wanted = None if rule is None else rule(tensor.layer, spec.num_layers)
        wanted = wanted or self.linear
        attention = spec.layers[tensor.layer].attention
        is_shared = attention.num_heads != attention.num_kv_heads
        if spec.num_layers == _LAYERS_OF_70B and is_shared and (place, wanted) == ("attn_v", Q4_K):
            return Q5_K
        return wanted


def _bits(block: BlockFormat) -> float:
    return block.block_bytes / block.block_columns


def takes_more_bits(layer: int, num_layers: int) -> bool:
    """Returns whether the layer is in the first or last eighth, or is every third layer between
    them."""
    eighth = num_layers // 8
    return layer < eighth or layer >= 7 * num_layers // 8 or (layer - eighth) % 3 == 2


def _more_bits(block: BlockFormat) -> _Rule:
    return lambda layer, num_layers: block if takes_more_bits(layer, num_layers) else None


def _first_layers(layer: int, num_layers: int) -> BlockFormat | None:
    return Q5_K if layer < 4 else None


def _medium(own: BlockFormat, file_type: int) -> GGUFFormats:
    rules = dict.fromkeys(("attn_v", "attn_qkv", "ffn_down"), _more_bits(Q6_K))
    return GGUFFormats(linear=own, output=Q6_K, embedding=own, rules=rules, file_type=file_type)


def _uniform(linear: BlockFormat, tables: BlockFormat) -> GGUFFormats:
    return GGUFFormats(linear=linear, output=tables, embedding=tables)


# The formats by the name of the target. As in llama.cpp's own Q4_0 files, the output layer and
# embedding get more bits than the rest. llama.cpp uses Q6_K there; we use Q8_0, which is rounded as
# quickly as Q4_0.
GGUF_FORMATS: dict[str, GGUFFormats] = {
    "gguf-f16": _uniform(F16, F16),
    "gguf-bf16": _uniform(BF16, BF16),
    "gguf-q8_0": _uniform(Q8_0, Q8_0),
    "gguf-q4_0": _uniform(q4_0.FORMAT, Q8_0),
    "gguf-q4_k_s": GGUFFormats(
        linear=Q4_K,
        output=Q6_K,
        embedding=Q4_K,
        rules={
            "attn_v": _first_layers,
            "attn_qkv": _first_layers,
            "ffn_down": lambda layer, num_layers: Q5_K if layer < num_layers // 8 else None,
        },
        file_type=14,
    ),
    "gguf-q4_k_m": _medium(Q4_K, 15),
    "gguf-q5_k_s": GGUFFormats(linear=Q5_K, output=Q6_K, embedding=Q5_K, rules={}, file_type=16),
    "gguf-q5_k_m": _medium(Q5_K, 17),
    "gguf-q6_k": GGUFFormats(linear=Q6_K, output=Q6_K, embedding=Q6_K, rules={}, file_type=18),
}
