"""Each pass reads each row once, and a batch depends on the number of its step alone (D09)."""

from pathlib import Path

import torch

from drivers.tiny_training import config, random_rows
from fakes.tiny_models import make_model
from paredown.distill.row_batches import RowBatches
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder


def test_a_pass_reads_each_row_once_in_an_order_of_its_own(tmp_path: Path) -> None:
    make_model("llama", torch.float32, 4).save_pretrained(tmp_path)
    student = Decoder.from_checkpoint(Checkpoint.open(tmp_path))
    rows = random_rows(6, 8)
    source = RowBatches.of(rows, config(100, batch_tokens=20, seed=3))
    assert (source.num_rows, source.step_tokens) == (2, 16)
    read = [source.batch(step, student).inputs_BT.tolist() for step in range(6)]
    passes = [[row for batch in read[at : at + 3] for row in batch] for at in (0, 3)]
    for one in passes:
        assert sorted(one) == sorted(rows.tokens_NT[:, :-1].tolist())
    assert passes[0] != passes[1]
    assert source.batch(4, student).inputs_BT.tolist() == read[4]
