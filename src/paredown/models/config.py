"""ModelSpec from a Hugging Face `config.json`, for the families we know."""

from collections.abc import Mapping

from paredown.errors import CheckpointError, UnsupportedError
from paredown.models.families.family import Family
from paredown.models.families.fields import Fields
from paredown.models.families.gpt2 import GPT2
from paredown.models.families.llama import LLAMA
from paredown.models.families.mistral import MISTRAL
from paredown.models.families.mixtral import MIXTRAL
from paredown.models.families.opt import OPT
from paredown.models.families.qwen2 import QWEN2
from paredown.models.families.qwen2_moe import QWEN2_MOE
from paredown.models.families.qwen3 import QWEN3
from paredown.models.families.qwen3_moe import QWEN3_MOE
from paredown.spec.model import ModelSpec, Rotary

FAMILIES: dict[str, Family] = {
    "llama": LLAMA,
    "mistral": MISTRAL,
    "qwen2": QWEN2,
    "qwen3": QWEN3,
    "mixtral": MIXTRAL,
    "qwen2_moe": QWEN2_MOE,
    "qwen3_moe": QWEN3_MOE,
    "gpt2": GPT2,
    "opt": OPT,
}


def family_from_config(config: Mapping[str, object]) -> Family:
    """The family that `model_type` names. Raises UnsupportedError for one we do not have."""
    model_type = Fields(config).text("model_type")
    if model_type not in FAMILIES:
        raise UnsupportedError(
            "config.json has an unknown model_type",
            seen=model_type,
            remedy=f"Known model types: {', '.join(FAMILIES)}.",
        )
    return FAMILIES[model_type]


def spec_from_config(config: Mapping[str, object]) -> ModelSpec:
    """The spec. Raises CheckpointError for a missing or bad field (named), UnsupportedError for an
    unknown model type or a variant that the spec cannot express."""
    return check_heads(family_from_config(config).read_spec(Fields(config)))


def check_heads(spec: ModelSpec) -> ModelSpec:
    """The spec itself. Raises CheckpointError for heads that cannot be."""
    if spec.num_heads % spec.num_kv_heads:
        raise CheckpointError(
            "config.json: the number of attention heads is not a multiple of the key-value heads",
            seen=f"{spec.num_heads} heads, {spec.num_kv_heads} key-value heads",
            remedy="Correct num_key_value_heads, or download the checkpoint again.",
        )
    if isinstance(spec.positions, Rotary) and spec.head_dim % 2:
        raise CheckpointError(
            "config.json: rotary positions need an even head size",
            seen=f"head_dim {spec.head_dim}",
            remedy="Correct head_dim, or download the checkpoint again.",
        )
    return spec
