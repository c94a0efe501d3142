"""IndexConfig: how an index keeps and compares its vectors."""

from dataclasses import dataclass

from paredown.errors import ConfigError
from paredown.kernels.vector_search import VECTOR_DTYPES, VectorDType
from paredown.retrieve.index_header import METRICS, Metric


@dataclass(frozen=True, kw_only=True)
class IndexConfig:
    """How vectors are kept: as "int8" with a scale for each, "bf16" or "fp32"; and compared: by
    their "cosine", for which they are kept with length 1, or their "dot" product. `model` names
    what made them, such as by `model_digest`. Raises ConfigError for anything else."""

    dtype: VectorDType = "int8"
    metric: Metric = "cosine"
    model: str = ""

    def __post_init__(self) -> None:
        for name, value, known in (
            ("dtype", self.dtype, VECTOR_DTYPES),
            ("metric", self.metric, METRICS),
        ):
            if value not in known:
                raise ConfigError(
                    f"an index has no such {name}", seen=value, remedy=f"Use {', '.join(known)}."
                )
