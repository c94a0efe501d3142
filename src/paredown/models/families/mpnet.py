"""MPNet (arXiv 2004.09297): BERT's layer with learned numbers on the scores by distance, which all
layers share, and positions counted from row 2. It has no token types."""

from dataclasses import replace

from paredown.models.families import bert
from paredown.models.families.encoder_heads import lm_head_steps, out_proj_classifier
from paredown.models.families.family import Family, LinearModule
from paredown.models.families.fields import Fields
from paredown.models.families.roberta import CONFIG_FIELDS, IGNORABLE
from paredown.spec.attention import RelativePositions
from paredown.spec.model import ModelSpec

# Fixed in Transformers' code.
_RELATIVE = RelativePositions(num_buckets=32, max_distance=128)
_FIRST_POSITION = 2


def read_spec(fields: Fields) -> ModelSpec:
    fields.must_be("relative_attention_num_buckets", _RELATIVE.num_buckets)
    spec = bert.post_norm_spec(fields, "mpnet", num_token_types=0, first_position=_FIRST_POSITION)
    layers = tuple(
        replace(layer, attention=replace(layer.attention, relative=_RELATIVE))
        for layer in spec.layers
    )
    return replace(spec, layers=layers)


MPNET = Family(
    model_type="mpnet",
    read_spec=read_spec,
    prefixes=("mpnet.", ""),
    linears={
        **bert.LINEARS,
        **{
            role: LinearModule(module=f"encoder.layer.{{layer}}.attention.attn.{role}")
            for role in ("q", "k", "v", "o")
        },
    },
    norms={**bert.NORMS, "attention_sum_norm": "encoder.layer.{layer}.attention.LayerNorm"},
    embedding=bert.EMBEDDING,
    position_embedding=bert.POSITIONS,
    relative_biases="encoder.relative_attention_bias",
    config_fields=CONFIG_FIELDS,
    ignorable=IGNORABLE,
    classifier=out_proj_classifier,
    masked_lm=lm_head_steps,
)
