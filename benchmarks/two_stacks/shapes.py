"""The two models that are compared: T5 1.1's shape, and a decoder of the same width and as many
parameters outside the tables."""

from collections.abc import Mapping
from dataclasses import dataclass

from paredown.models.config import spec_from_config
from paredown.spec.model import ModelSpec

Config = Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A width, and the number of layers of each of T5's stacks."""

    hidden_size: int
    mlp_size: int
    num_heads: int
    num_layers: int
    vocab_size: int = 32128
    max_positions: int = 4096

    @property
    def encoder_decoder(self) -> Config:
        return {
            "architectures": ["T5ForConditionalGeneration"],
            "model_type": "t5",
            "d_model": self.hidden_size,
            "d_ff": self.mlp_size,
            "d_kv": self.hidden_size // self.num_heads,
            "num_heads": self.num_heads,
            "num_layers": self.num_layers,
            "vocab_size": self.vocab_size,
            "n_positions": self.max_positions,
            "feed_forward_proj": "gated-gelu",
            "tie_word_embeddings": False,
            "decoder_start_token_id": 0,
            "pad_token_id": 0,
            "bos_token_id": 0,
            "eos_token_id": 1,
            "torch_dtype": "bfloat16",
        }

    @property
    def decoder(self) -> Config:
        """A decoder of the layers that T5's encoder has, as many as the parameters give."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": self.hidden_size,
            "intermediate_size": self.mlp_size,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_heads,
            "num_hidden_layers": self.num_decoder_layers,
            "vocab_size": self.vocab_size,
            "max_position_embeddings": self.max_positions,
            "rms_norm_eps": 1e-6,
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": False,
            "bos_token_id": 0,
            "eos_token_id": 1,
            "torch_dtype": "bfloat16",
        }

    @property
    def num_decoder_layers(self) -> int:
        """The number of layers that have the weights of both stacks, cross-attention counted."""
        attention = 4 * self.hidden_size**2
        layer = attention + 3 * self.hidden_size * self.mlp_size
        return round(self.num_layers * (2 * layer + attention) / layer)

    def specs(self) -> dict[str, ModelSpec]:
        return {name: spec_from_config(config) for name, config in self.configs().items()}

    def configs(self) -> dict[str, Config]:
        return {"encoder-decoder": self.encoder_decoder, "decoder": self.decoder}


BASE = Shape(hidden_size=768, mlp_size=2048, num_heads=12, num_layers=12)
# For a look at the script itself.
TINY = Shape(hidden_size=64, mlp_size=128, num_heads=2, num_layers=2, vocab_size=512)
