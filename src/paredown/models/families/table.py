"""The table of supported families, by the `model_type` of their config.json."""

from paredown.models.families.bert import BERT
from paredown.models.families.distilbert import DISTILBERT
from paredown.models.families.family import Family
from paredown.models.families.gemma import GEMMA
from paredown.models.families.gemma2 import GEMMA2
from paredown.models.families.gemma3 import EMBEDDING_GEMMA, GEMMA3
from paredown.models.families.gpt2 import GPT2
from paredown.models.families.gpt_neox import GPT_NEOX
from paredown.models.families.gpt_oss import GPT_OSS
from paredown.models.families.granite import GRANITE
from paredown.models.families.granite_moe_hybrid import GRANITE_MOE_HYBRID
from paredown.models.families.llama import LLAMA
from paredown.models.families.ministral3 import MINISTRAL3
from paredown.models.families.mistral import MINISTRAL, MISTRAL
from paredown.models.families.mixtral import MIXTRAL
from paredown.models.families.modernbert import MODERNBERT
from paredown.models.families.mpnet import MPNET
from paredown.models.families.nomic_bert import NOMIC_BERT
from paredown.models.families.olmo2 import OLMO2, OLMO3
from paredown.models.families.opt import OPT
from paredown.models.families.phi import PHI
from paredown.models.families.phi3 import PHI3
from paredown.models.families.qwen2 import QWEN2
from paredown.models.families.qwen2_moe import QWEN2_MOE
from paredown.models.families.qwen3 import QWEN3
from paredown.models.families.qwen3_moe import QWEN3_MOE
from paredown.models.families.roberta import CAMEMBERT, ROBERTA, XLM_ROBERTA
from paredown.models.families.smollm3 import SMOLLM3
from paredown.models.families.starcoder2 import STARCODER2
from paredown.models.families.t5 import T5

# Families whose models go by another architecture in GGUF files where they embed.
OTHER_ARCHITECTURES: tuple[Family, ...] = (EMBEDDING_GEMMA,)
FAMILIES: dict[str, Family] = {
    "llama": LLAMA,
    "mistral": MISTRAL,
    "ministral": MINISTRAL,
    "ministral3": MINISTRAL3,
    "qwen2": QWEN2,
    "qwen3": QWEN3,
    "mixtral": MIXTRAL,
    "qwen2_moe": QWEN2_MOE,
    "qwen3_moe": QWEN3_MOE,
    "gpt2": GPT2,
    "opt": OPT,
    "gpt_neox": GPT_NEOX,
    "gemma": GEMMA,
    "gemma2": GEMMA2,
    "gemma3_text": GEMMA3,
    "phi3": PHI3,
    "granite": GRANITE,
    "granitemoehybrid": GRANITE_MOE_HYBRID,
    "smollm3": SMOLLM3,
    "starcoder2": STARCODER2,
    "olmo2": OLMO2,
    "olmo3": OLMO3,
    "phi": PHI,
    "gpt_oss": GPT_OSS,
    "t5": T5,
    "bert": BERT,
    "roberta": ROBERTA,
    "xlm-roberta": XLM_ROBERTA,
    "camembert": CAMEMBERT,
    "mpnet": MPNET,
    "distilbert": DISTILBERT,
    "nomic_bert": NOMIC_BERT,
    "modernbert": MODERNBERT,
}
