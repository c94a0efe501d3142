"""Phi-3, 3.5 and 4-mini (arXiv 2404.14219): Llama's layer with one module for query, key and value
and one for gate and up. Some rotate only a part of each head, and some use LongRoPE."""

from collections.abc import Mapping

import numpy as np

from paredown.models.families import gated_rotary
from paredown.models.families.family import Family, LinearModule, fused_modules
from paredown.models.families.fields import Fields
from paredown.models.families.gated_rotary import FamilyTraits, read_gated_rotary
from paredown.models.families.gguf_rows import PLAIN_KEYS, GGUFRows, Metadata, turned_share
from paredown.models.families.read_fields import ReadFields
from paredown.models.families.rotary import rotary_share
from paredown.spec.model import ModelSpec
from paredown.spec.roles import QKV_ROLES

_WINDOW_KEY = "phi3.attention.sliding_window"
_UP_ROLES = ("gate", "up")
# LongRoPE's names in Phi-3's first configs.
_OLD_NAMES = ("su", "yarn")


def read_spec(fields: Fields) -> ModelSpec:
    known = _with_known_names(fields)
    traits = FamilyTraits(
        family="phi3",
        default_norm_eps=1e-5,
        sliding_window=fields.optional_integer("sliding_window"),
        rotary_share=rotary_share(known, 1.0),
    )
    return read_gated_rotary(known, traits)


def _with_known_names(fields: Fields) -> Fields:
    changes: dict[str, object] = {}
    for name in ("rope_scaling", "rope_parameters"):
        parameters = fields.config.get(name)
        if isinstance(parameters, ReadFields):
            kind = parameters.get("rope_type", parameters.get("type"))
            if kind in _OLD_NAMES:
                changes[name] = parameters.overlaid({"rope_type": "longrope"})
    return fields.overlaid(changes)


def _config_from_gguf(fields: Fields, config: Mapping[str, object]) -> dict[str, object]:
    found: dict[str, object] = {
        "sliding_window": fields.integer(_WINDOW_KEY, 0, minimum=0) or None,
        # Otherwise Transformers takes the id of the first models, for which others have no row.
        "pad_token_id": None,
    }
    share = turned_share(fields, "phi3", config)
    return found if share == 1 else {**found, "partial_rotary_factor": share}


def _gguf_from_spec(spec: ModelSpec) -> Metadata:
    """Writes a window only if it hides nothing: llama.cpp reads the key but runs without the
    window."""
    window = spec.layers[0].attention.window or 0
    return {_WINDOW_KEY: np.uint32(window if window >= spec.max_positions else 0)}


PHI3 = Family(
    model_type="phi3",
    read_spec=read_spec,
    prefixes=gated_rotary.PREFIXES,
    linears={
        **fused_modules("layers.{layer}.self_attn.qkv_proj", QKV_ROLES),
        "o": LinearModule(module="layers.{layer}.self_attn.o_proj"),
        **fused_modules("layers.{layer}.mlp.gate_up_proj", _UP_ROLES),
        "down": LinearModule(module="layers.{layer}.mlp.down_proj"),
    },
    norms=gated_rotary.NORMS,
    embedding=gated_rotary.EMBEDDING,
    ignorable=gated_rotary.IGNORABLE,
    config_fields=gated_rotary.CONFIG_FIELDS,
    gguf=GGUFRows(
        architecture="phi3",
        class_name="Phi3ForCausalLM",
        keys=PLAIN_KEYS,
        linears={
            **dict.fromkeys(QKV_ROLES, "attn_qkv"),
            "o": "attn_output",
            **dict.fromkeys(_UP_ROLES, "ffn_up"),
            "down": "ffn_down",
        },
        takes_longrope=True,
        more_config=_config_from_gguf,
        more_metadata=_gguf_from_spec,
    ),
)
