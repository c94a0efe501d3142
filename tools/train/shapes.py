"""The shapes of the two models, and their Hugging Face configuration."""

from __future__ import annotations

from dataclasses import dataclass

from tools.train.tokenizer import END_OF_TEXT_ID, VOCAB_SIZE


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A Llama-architecture decoder with tied embeddings. Widths are in units of one value."""

    hidden: int
    layers: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int = 64
    vocab: int = VOCAB_SIZE
    context: int = 2048
    rope_theta: float = 10000.0
    norm_eps: float = 1e-5

    def parameters(self) -> int:
        """Number of parameters, the embedding counted once."""
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        layer = attention + 3 * self.hidden * self.intermediate + 2 * self.hidden
        return self.vocab * self.hidden + self.layers * layer + self.hidden

    def huggingface_config(self) -> dict[str, object]:
        """The content of config.json."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "vocab_size": self.vocab,
            "max_position_embeddings": self.context,
            "rope_theta": self.rope_theta,
            "rms_norm_eps": self.norm_eps,
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": True,
            "bos_token_id": END_OF_TEXT_ID,
            "eos_token_id": END_OF_TEXT_ID,
            "torch_dtype": "bfloat16",
        }


SHAPES = {
    "default": Shape(hidden=384, layers=5, intermediate=896, heads=6, kv_heads=2),
    "draft": Shape(hidden=128, layers=2, intermediate=256, heads=2, kv_heads=1),
}
