"""Parts of a batch have everything that the batch has."""

from dataclasses import fields, replace

import torch

from drivers.tiny_training import uneven_rows
from paredown.distill.batch import Batch


def test_parts_keep_each_field_of_their_rows() -> None:
    batch = uneven_rows([1, 9, 3, 7], 12).batch(torch.arange(4).numpy())
    shape = batch.inputs_BT.shape
    random = torch.Generator().manual_seed(1)
    whole = replace(
        batch,
        texts_BT=torch.randint(0, 3, shape, generator=random),
        types_BT=torch.randint(0, 2, shape, generator=random),
        advantages_BT=torch.randn(shape, generator=random),
        weights_BT=torch.rand(shape, generator=random),
    )
    parts = whole.split(3)
    assert [len(part.inputs_BT) for part in parts] == [3, 1]
    for field in fields(Batch):
        together = torch.cat([getattr(part, field.name) for part in parts])
        assert (together == getattr(whole, field.name)).all()
    for part in batch.split(3):
        assert part.texts_BT is part.types_BT is part.advantages_BT is part.weights_BT is None
