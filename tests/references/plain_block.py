"""A Block in memory, of any checkpoint's layer or of random weights."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from fakes import tiny_t5
from fakes.tiny_models import VARIANTS, VOCAB_SIZE
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.encoder_decoder import EncoderDecoder
from paredown.models.decoder.layer import Layer
from paredown.models.decoder.points import Tap
from paredown.spec.model import ModelSpec


@dataclass(frozen=True, kw_only=True)
class PlainBlock:
    """`batches` are [B, T, D] each, and `vectors` [B, S, D] what cross-attention reads beside them.
    Nothing is cut short: `stop_after` only saves time."""

    spec: ModelSpec
    layer: Layer
    table: tuple[Tensor, Tensor] | None
    mask: Tensor
    batches: list[Tensor]
    vectors: list[Tensor] | None = None

    def inputs(self) -> Iterator[Tensor]:
        yield from self.batches

    def encoded(self) -> Iterator[Tensor | None]:
        yield from [None] * len(self.batches) if self.vectors is None else self.vectors

    def run(self, tap: Tap, stop_after: str | None = None) -> None:
        before, self.layer.tap = self.layer.tap, tap
        self.outputs()
        self.layer.tap = before

    def outputs(self) -> Tensor:
        both = zip(self.inputs(), self.encoded(), strict=True)
        return torch.cat([self.layer(x, self.table, self.mask, read) for x, read in both])


def tiny_block(variant: str, folder: Path, *, seed: int = 0, double: bool = False) -> PlainBlock:
    """The first layer of a tiny model, with three batches of two sequences of 24 tokens."""
    VARIANTS[variant](folder, torch.float32, seed)
    decoder = Decoder.from_checkpoint(Checkpoint.open(folder))
    if double:
        decoder.double()
    torch.manual_seed(seed)
    ids = torch.randint(2, VOCAB_SIZE, (6, 24))
    table, mask = decoder.positions(24)[0]
    if double and table is not None:
        table = table[0].double(), table[1].double()
    layer = decoder.layers[0]
    assert isinstance(layer, Layer)
    return PlainBlock(
        spec=decoder.spec,
        layer=layer,
        table=table,
        mask=mask,
        batches=list(decoder.embed(ids).split(2)),
    )


def cross_block(folder: Path, kind: str = "gated-tied", *, double: bool = False) -> PlainBlock:
    """The first layer of a tiny T5's decoder, with three batches of two sequences of 24 tokens,
    beside 31 tokens of its encoder."""
    tiny_t5.write_t5(tiny_t5.make_t5(kind), folder)
    model = EncoderDecoder.from_checkpoint(Checkpoint.open(folder))
    if double:
        model.double()
    draw = torch.Generator().manual_seed(0)
    read = torch.randint(2, tiny_t5.VOCAB_SIZE, (6, 31), generator=draw)
    ids = torch.randint(2, tiny_t5.VOCAB_SIZE, (6, 24), generator=draw)
    decoder = model.decoder
    table, mask = decoder.positions(24)[0]
    layer = decoder.layers[0]
    assert isinstance(layer, Layer)
    return PlainBlock(
        spec=decoder.spec,
        layer=layer,
        table=table,
        mask=mask,
        batches=list(decoder.embed(ids).split(2)),
        vectors=list(model.encoder.encode(read).split(2)),
    )
