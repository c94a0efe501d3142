"""RoBERTa (arXiv 1907.11692), XLM-R (1911.02116) and CamemBERT: BERT's layer, with positions that
begin behind the row of the padding token."""

from collections.abc import Mapping

from paredown.models.families import bert
from paredown.models.families.encoder_heads import lm_head_steps, out_proj_classifier
from paredown.models.families.family import Family
from paredown.models.families.fields import Fields
from paredown.spec.model import ModelSpec

_PADDING = 1
# The pooler of a plain encoder, the head of pre-training, and the positions as a buffer.
IGNORABLE = (*bert.IGNORABLE, r"lm_head\..*")
CONFIG_FIELDS: Mapping[str, str] = {
    name: field for name, field in bert.CONFIG_FIELDS.items() if name != "max_positions"
} | {"num_position_rows": "max_position_embeddings"}


def _family(model_type: str) -> Family:
    def read_spec(fields: Fields) -> ModelSpec:
        padding = fields.integer("pad_token_id", _PADDING, minimum=0)
        return bert.post_norm_spec(
            fields,
            model_type,
            num_token_types=fields.integer("type_vocab_size", 2),
            first_position=padding + 1,
        )

    return Family(
        model_type=model_type,
        read_spec=read_spec,
        prefixes=("roberta.", ""),
        linears=bert.LINEARS,
        norms=bert.NORMS,
        embedding=bert.EMBEDDING,
        position_embedding=bert.POSITIONS,
        token_type_embedding=bert.TOKEN_TYPES,
        config_fields={**CONFIG_FIELDS, "num_token_types": "type_vocab_size"},
        ignorable=IGNORABLE,
        renamed=bert.RENAMED,
        classifier=out_proj_classifier,
        masked_lm=lm_head_steps,
    )


ROBERTA = _family("roberta")
XLM_ROBERTA = _family("xlm-roberta")
CAMEMBERT = _family("camembert")
