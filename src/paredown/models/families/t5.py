"""T5 (arXiv 1910.10683) and its 1.1 version (FLAN-T5): an encoder, and a decoder that reads its
vectors. RMSNorm, relative positions, scores without a scale, no biases."""

from collections.abc import Mapping
from dataclasses import replace

from paredown.errors import CheckpointError
from paredown.models.families.family import Family, LinearModule
from paredown.models.families.fields import ACTIVATIONS, Fields
from paredown.spec.attention import Attention, RelativePositions
from paredown.spec.layer import LayerSpec
from paredown.spec.mlp import Mlp
from paredown.spec.model import Embedding, ModelSpec, Output
from paredown.spec.norm import Norm, Norms

# What T5 was trained on. Relative positions take longer texts too, if config.json says so.
MAX_POSITIONS = 512
_GATED = "gated-"


def read_spec(fields: Fields) -> ModelSpec:
    fields.must_be("is_encoder_decoder", True)
    num_layers = fields.num_layers("num_layers")
    num_decoder_layers = num_layers
    if fields.config.get("num_decoder_layers") is not None:
        num_decoder_layers = fields.num_layers("num_decoder_layers")
    norm = Norm(kind="rms", eps=fields.number("layer_norm_epsilon", 1e-6))
    mlp = _mlp(fields)
    encoder = LayerSpec(
        attention=_attention(fields, is_causal=False),
        mlp=mlp,
        norms=Norms(attention=norm, mlp=norm),
    )
    decoder = LayerSpec(
        attention=_attention(fields, is_causal=True),
        cross=_attention(fields, is_causal=False, is_relative=False),
        mlp=mlp,
        norms=Norms(attention=norm, cross=norm, mlp=norm),
    )
    hidden_size = fields.integer("d_model")
    is_tied = fields.flag("tie_word_embeddings", True)
    is_scaled = fields.flag("scale_decoder_outputs", is_tied)
    encoder_spec = ModelSpec(
        family="t5",
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden_size,
        max_positions=fields.integer("n_positions", MAX_POSITIONS),
        embedding=Embedding(),
        layers=(encoder,) * num_layers,
        final_norm=norm,
        output=None,
    )
    return replace(
        encoder_spec,
        layers=(decoder,) * num_decoder_layers,
        output=Output(is_tied=is_tied, multiplier=hidden_size**-0.5 if is_scaled else 1.0),
        encoder=encoder_spec,
    )


def _attention(fields: Fields, *, is_causal: bool, is_relative: bool = True) -> Attention:
    num_heads = fields.integer("num_heads")
    relative = _relative(fields)
    return Attention(
        num_heads=num_heads,
        num_kv_heads=num_heads,
        head_dim=fields.integer("d_kv"),
        rotary=None,
        is_causal=is_causal,
        scale=1.0,
        relative=relative if is_relative else None,
    )


def _relative(fields: Fields) -> RelativePositions:
    num_buckets = fields.integer("relative_attention_num_buckets", 32, minimum=4)
    max_distance = fields.integer("relative_attention_max_distance", 128)
    if num_buckets % 4 or max_distance <= num_buckets // 2:
        raise CheckpointError(
            f"{fields.where}: relative positions have buckets in fours, half of which, those of "
            "single distances, end before the largest distance",
            seen=f"{num_buckets} buckets, a largest distance of {max_distance}",
            remedy="Correct the fields, or download the checkpoint again.",
        )
    return RelativePositions(num_buckets=num_buckets, max_distance=max_distance)


def _mlp(fields: Fields) -> Mlp:
    """Reads "relu" or "gated-gelu"; the second is the tanh form."""
    name = fields.text("feed_forward_proj", "relu")
    fields.pass_over("dense_act_fn", "is_gated_act")
    activation = "gelu_new" if name == "gated-gelu" else name.removeprefix(_GATED)
    if activation not in ACTIVATIONS:
        raise fields.wrong("feed_forward_proj", "relu or gated-gelu")
    return Mlp(
        size=fields.integer("d_ff"),
        is_gated=name.startswith(_GATED),
        activation=ACTIVATIONS[activation],
    )


def _stack(name: str, mlp: int) -> dict[str, LinearModule]:
    """Returns the modules of self-attention, and of the MLP as sublayer number `mlp`."""
    attention = name + ".block.{layer}.layer.0.SelfAttention."
    inner = f"{name}.block.{{layer}}.layer.{mlp}.DenseReluDense."
    return {
        **{role: LinearModule(module=attention + role) for role in ("q", "k", "v", "o")},
        "down": LinearModule(module=f"{inner}wo"),
    }


def _names(*, is_gated: bool) -> Family:
    """Returns the names; those inside an MLP differ where it has a gate."""

    def linears(name: str, mlp: int) -> dict[str, LinearModule]:
        inner = f"{name}.block.{{layer}}.layer.{mlp}.DenseReluDense."
        ups = {"gate": "wi_0", "up": "wi_1"} if is_gated else {"up": "wi"}
        found = {role: LinearModule(module=inner + module) for role, module in ups.items()}
        return _stack(name, mlp) | found

    cross = "decoder.block.{layer}.layer.1.EncDecAttention."
    relative = "block.0.layer.0.SelfAttention.relative_attention_bias"
    encoder = Family(
        model_type="t5",
        read_spec=read_spec,
        prefixes=("",),
        linears=linears("encoder", 1),
        norms={
            "attention_norm": "encoder.block.{layer}.layer.0.layer_norm",
            "mlp_norm": "encoder.block.{layer}.layer.1.layer_norm",
            "final_norm": "encoder.final_layer_norm",
        },
        embedding="shared",
        relative_biases=f"encoder.{relative}",
    )
    return Family(
        model_type="t5",
        read_spec=read_spec,
        prefixes=("",),
        linears={
            **linears("decoder", 2),
            **{f"cross_{role}": LinearModule(module=cross + role) for role in ("q", "k", "v", "o")},
        },
        norms={
            "attention_norm": "decoder.block.{layer}.layer.0.layer_norm",
            "cross_norm": "decoder.block.{layer}.layer.1.layer_norm",
            "mlp_norm": "decoder.block.{layer}.layer.2.layer_norm",
            "final_norm": "decoder.final_layer_norm",
        },
        embedding="shared",
        relative_biases=f"decoder.{relative}",
        encoder=encoder,
        variant=_variant,
        # Copies of the embedding, and a table that no version reads.
        ignorable=(
            r"(encoder|decoder)\.embed_tokens\.weight",
            r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",
        ),
        config_fields={
            "vocab_size": "vocab_size",
            "hidden_size": "d_model",
            "is_tied": "tie_word_embeddings",
            "max_positions": "n_positions",
        },
        # Where the field is missing, only a tied output layer is scaled.
        untied_fields={"scale_decoder_outputs": True},
    )


def _variant(config: Mapping[str, object]) -> Family:
    is_gated = str(config.get("feed_forward_proj", "relu")).startswith(_GATED)
    return T5_GATED if is_gated else T5


T5 = _names(is_gated=False)
T5_GATED = _names(is_gated=True)
