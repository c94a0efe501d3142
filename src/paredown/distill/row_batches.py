"""RowBatches: batches of a text's rows, one shuffled pass after another."""

from dataclasses import dataclass

from paredown.distill.batch import Batch
from paredown.distill.row_order import RowOrder
from paredown.distill.rows import BatchRows
from paredown.distill.train_config import TrainConfig
from paredown.models.decoder.decoder import Decoder


@dataclass(frozen=True, kw_only=True)
class RowBatches:
    """Implements BatchSource by `num_rows` rows a step; `seed` is that of their order."""

    rows: BatchRows
    num_rows: int
    seed: int

    @classmethod
    def of(cls, rows: BatchRows, config: TrainConfig) -> "RowBatches":
        """Returns the batches that the training's numbers ask for."""
        return cls(rows=rows, num_rows=config.step_rows(rows.num_tokens), seed=config.seed)

    @property
    def step_tokens(self) -> int:
        return self.num_rows * self.rows.num_tokens

    def batch(self, step: int, student: Decoder) -> Batch:
        order = RowOrder(num_rows=self.rows.num_rows, seed=self.seed)
        return self.rows.batch(order.rows(step * self.num_rows, self.num_rows))
