"""The families that we know, by the `model_type` of their config.json."""

from paredown.models.families.family import Family
from paredown.models.families.gemma2 import GEMMA2
from paredown.models.families.gemma3 import GEMMA3
from paredown.models.families.gpt2 import GPT2
from paredown.models.families.gpt_neox import GPT_NEOX
from paredown.models.families.gpt_oss import GPT_OSS
from paredown.models.families.llama import LLAMA
from paredown.models.families.mistral import MISTRAL
from paredown.models.families.mixtral import MIXTRAL
from paredown.models.families.opt import OPT
from paredown.models.families.qwen2 import QWEN2
from paredown.models.families.qwen2_moe import QWEN2_MOE
from paredown.models.families.qwen3 import QWEN3
from paredown.models.families.qwen3_moe import QWEN3_MOE

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
    "gpt_neox": GPT_NEOX,
    "gemma2": GEMMA2,
    "gemma3_text": GEMMA3,
    "gpt_oss": GPT_OSS,
}
