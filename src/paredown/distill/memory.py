"""Predicts how much memory a training takes at its peak, and chooses the layout that fits.

What a layer keeps for its gradients is not guessed: one layer of each kind runs on one and on two
rows, and the tensors that autograd keeps are counted. Factors were measured with
tests/distill/test_memory.py and on SmolLM2-135M (docs/methods/training.md).
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from paredown.distill.arithmetic import Arithmetic, computing
from paredown.distill.batch import Batch
from paredown.distill.chunked_logits import chunk_rows
from paredown.distill.forward import layer_positions
from paredown.distill.layout import Layout, layouts
from paredown.errors import CapacityError
from paredown.kernels.probe import available_memory_bytes
from paredown.models.decoder.layer import Layer
from paredown.spec.layer import LayerSpec
from paredown.spec.model import ModelSpec
from paredown.units import MEBI, format_bytes

# What libraries allocate when they first compute, beside the tensors here.
_LIBRARY_BYTES = 96 * MEBI
# The float32 tensors of a chunk of logits that live at once: the student's and the teacher's, their
# logarithms, probabilities, gradients.
_CHUNK_COPIES = 7
# The values of a token that live at once inside a layer, in units of all it keeps, while its
# gradients are computed.
_BACKWARD_SHARE = 1.0
_HIDDEN_COPIES = 6


@dataclass(frozen=True, kw_only=True)
class TrainingMemory:
    """The terms of the peak memory, in bytes. `base` is what the process takes already."""

    base: int
    libraries: int
    student: int
    optimizer: int
    gradients: int
    teacher: int
    values: int

    @property
    def total(self) -> int:
        return sum(asdict(self).values())

    @property
    def growth(self) -> int:
        """The bytes to come."""
        return self.total - self.base

    def require(self) -> None:
        """Raises CapacityError, with the arithmetic, if they do not fit now."""
        available = available_memory_bytes()
        if self.growth <= available:
            return
        terms = {name: size for name, size in asdict(self).items() if name != "base"}
        parts = ", ".join(f"{name} {format_bytes(size)}" for name, size in terms.items())
        raise CapacityError(
            "the training does not fit in memory",
            seen=f"{parts}: {format_bytes(self.growth)} of {format_bytes(available)} available",
            remedy="Use shorter windows of text, a smaller model, or a machine with more memory.",
        )


@dataclass(frozen=True, kw_only=True)
class TrainingSize:
    """Says how large a training is, beside its layout. `num_trained` counts the values
    that are trained, `num_held` those of masked matrices; `trains_tables` says whether the
    embedding or the output layer is among them. `teacher` None is none that runs here."""

    spec: ModelSpec
    num_trained: int
    num_held: int
    trains_tables: bool
    row_tokens: int
    step_rows: int
    arithmetic: Arithmetic
    teacher: ModelSpec | None = None

    def predict(self, layout: Layout) -> TrainingMemory:
        """Predicts the peak of a training that loads both models from now on."""
        gradients = 4 * self.num_trained
        width = 2 if self.arithmetic == "bf16" else 4
        return TrainingMemory(
            base=resident_bytes(),
            libraries=_LIBRARY_BYTES,
            student=4 * self.spec.num_parameters(),
            optimizer=8 * self.num_trained + self.num_held,
            gradients=gradients,
            teacher=0 if self.teacher is None else width * self.teacher.num_parameters(),
            # While gradients come, what was kept for them goes.
            values=layout.num_workers * max(gradients, self._worker_bytes(layout)),
        )

    def _worker_bytes(self, layout: Layout) -> int:
        tokens = layout.part_rows * (self.row_tokens - 1)
        hidden = 4 * tokens * self.spec.hidden_size
        kept = largest = 0
        for layer, count in self.spec.layer_counts.items():
            each = self._kept_bytes(layer, layout.part_rows)
            kept += count * (hidden if layout.recomputes else each)
            largest = max(largest, each)
        return kept + round(_BACKWARD_SHARE * largest) + _HIDDEN_COPIES * hidden + self._head()

    def _head(self) -> int:
        vocab, hidden = self.spec.vocab_size, self.spec.hidden_size
        chunk = _CHUNK_COPIES * 4 * chunk_rows(vocab) * vocab
        cast = 2 * vocab * hidden if self.arithmetic == "bf16" else 0
        return chunk + cast + (8 * vocab * hidden if self.trains_tables else 0)

    def _kept_bytes(self, layer: LayerSpec, num_rows: int) -> int:
        """Returns what one layer keeps for its gradients: a part for each row, and one for all."""
        one, two = (self._count(layer, rows) for rows in (1, 2))
        return one + (num_rows - 1) * (two - one)

    def _count(self, spec: LayerSpec, num_rows: int) -> int:
        index = self.spec.layers.index(spec)
        with torch.device("meta"):
            layer = Layer(self.spec, index)
        layer.to_empty(device="cpu")
        # Routers must not send all tokens to the same experts.
        random = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.normal_(std=0.02, generator=random)
        layer.is_fused = True
        tokens_BT = torch.zeros(num_rows, self.row_tokens - 1, dtype=torch.int64)
        batch = Batch(inputs_BT=tokens_BT, targets_BT=tokens_BT, is_target_BT=tokens_BT > 0)
        x_BTD = torch.randn(*tokens_BT.shape, self.spec.hidden_size, generator=random)
        x_BTD.requires_grad_()
        with _counting() as sizes, computing(self.arithmetic):
            layer(x_BTD, *layer_positions(layer, batch))
        return sum(sizes.values())


def choose_layout(size: TrainingSize, num_threads: int) -> tuple[Layout, TrainingMemory]:
    """Returns the fastest layout that fits in memory now, and its prediction. Raises CapacityError
    where even the smallest does not fit."""
    available = available_memory_bytes()
    for layout in layouts(size.step_rows, size.row_tokens, num_threads):
        memory = size.predict(layout)
        if memory.growth <= available:
            return layout, memory
    memory.require()
    return layout, memory


def resident_bytes() -> int:
    """Returns the memory that this process holds now."""
    pages = Path("/proc/self/statm")
    if not pages.exists():
        return 0
    return int(pages.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def _counting() -> Iterator[dict[int, int]]:
    """Counts the bytes of what autograd keeps, each storage once, without parameters."""
    sizes: dict[int, int] = {}
    kept: list[Tensor] = []  # so that no two tensors get the same address

    def keep(tensor: Tensor) -> Tensor:
        if not isinstance(tensor, torch.nn.Parameter):
            kept.append(tensor)
            storage = tensor.untyped_storage()
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        yield sizes
