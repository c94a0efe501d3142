"""Predicts how much memory a training takes at its peak, and chooses the layout that fits.

What a layer keeps for its gradients is not guessed: one layer of each kind runs on one and on two
rows, and the tensors that autograd keeps are counted. The factors below were fitted to peaks of the
built-in model and of SmolLM2-135M, measured as tests/distill/test_memory.py measures.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from paredown.distill.arithmetic import Arithmetic, computing
from paredown.distill.batch import Batch
from paredown.distill.chunked_logits import chunk_rows
from paredown.distill.forward import layer_positions
from paredown.distill.layout import Layout, layouts
from paredown.distill.lesson_size import LessonSize
from paredown.errors import CapacityError
from paredown.models.decoder.device import check_device, free_bytes
from paredown.models.decoder.layer import Layer
from paredown.spec.device import Device
from paredown.spec.layer import LayerSpec
from paredown.spec.model import ModelSpec
from paredown.units import MEBI, format_bytes

# What libraries allocate when they first compute, beside the tensors here.
_LIBRARY_BYTES = 152 * MEBI
# The system's allocator keeps what tensors below this size leave for others of other sizes. So much
# memory do they take together, in units of their own.
_POOLED_BYTES = 32 * MEBI
_POOLED_SHARE = 1.2
# The float32 tensors of a chunk of logits: seven live at once, and chunk after chunk the allocator
# keeps what earlier ones left.
_CHUNK_COPIES = 20
# The float32 tensors of a part's hidden states that live at once outside of what is kept.
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

    def require(self, available: int) -> None:
        """Raises CapacityError, with the arithmetic, if they do not fit."""
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
    embedding or the output layer is among them. `teacher` None is none that runs here.
    `keeps_best` says that the best weights are kept beside those in training. `sampled_tokens` are
    those of a step's sampled texts, whose keys and values the models keep meanwhile. `stored_bytes`
    are those of a teacher's distributions that are read from disk. `lesson` is what the way to
    learn takes beside."""

    spec: ModelSpec
    num_trained: int
    num_held: int
    trains_tables: bool
    row_tokens: int
    step_rows: int
    arithmetic: Arithmetic
    device: Device = "cpu"
    teacher: ModelSpec | None = None
    grid_bytes: int = 0
    prepare: Callable[[Layer], None] | None = None
    keeps_best: bool = False
    sampled_tokens: int = 0
    stored_bytes: int = 0
    lesson: LessonSize = field(default_factory=LessonSize)

    def predict(self, layout: Layout) -> TrainingMemory:
        """Predicts the peak of a training that loads both models from now on."""
        num_trained, num_beside = self.num_trained, self.lesson.num_parameters
        gradients = 4 * (num_trained + num_beside)
        # While gradients come, what was kept for them goes.
        worker = max(gradients, self._worker_bytes(layout))
        width = 2 if self.arithmetic == "bf16" else 4
        return TrainingMemory(
            base=resident_bytes() if self.device == "cpu" else 0,
            libraries=_LIBRARY_BYTES,
            student=4 * (self.spec.num_parameters() + self.keeps_best * num_trained)
            + 4 * (1 + self.keeps_best) * num_beside
            + self.grid_bytes,
            optimizer=8 * (num_trained + num_beside) + self.num_held,
            gradients=gradients,
            teacher=self.stored_bytes
            + (0 if self.teacher is None else width * self.teacher.num_parameters()),
            values=max(layout.num_workers * worker, self._sampling_bytes()),
        )

    def _sampling_bytes(self) -> int:
        """Returns what float32 keys and values take, which are copied where rows end."""
        models = [self.spec] if self.teacher is None else [self.spec, self.teacher]
        layers = (one.attention for model in models for one in model.layers)
        columns = sum(one.num_kv_heads * one.head_dim for one in layers)
        return 2 * 4 * 2 * self.sampled_tokens * columns

    def _worker_bytes(self, layout: Layout) -> int:
        """Returns what a thread takes for a part: what layers keep, one layer more while its
        gradients are computed, and the output layer."""
        tokens = layout.part_rows * (self.row_tokens - 1)
        hidden = pooled(4 * tokens * self.spec.hidden_size)
        kept = largest = 0
        for layer, count in self.spec.layer_counts.items():
            each = self._kept_bytes(layer, layout.part_rows)
            kept += count * (hidden if layout.recomputes else each)
            largest = max(largest, each)
        lesson = self.lesson.part_bytes(layout.part_rows, self.row_tokens - 1, layout.recomputes)
        return kept + largest + _HIDDEN_COPIES * hidden + self._head_bytes(tokens) + lesson

    def _head_bytes(self, tokens: int) -> int:
        vocab, hidden = self.spec.vocab_size, self.spec.hidden_size
        if not self.spec.generates:
            return 8 * vocab * hidden if self.trains_tables else 0
        chunk = _CHUNK_COPIES * 4 * min(tokens, chunk_rows(vocab, self.device)) * vocab
        cast = 2 * vocab * hidden if self.arithmetic == "bf16" else 0
        return chunk + cast + (8 * vocab * hidden if self.trains_tables else 0)

    def _kept_bytes(self, layer: LayerSpec, num_rows: int) -> int:
        """Returns what one layer keeps for its gradients. A tensor of two rows is larger than that
        of one where it has something for each row."""
        one, two = (self._kept(layer, rows) for rows in (1, 2))
        if len(one) != len(two):  # experts that no token chose keep nothing
            return pooled(sum(one)) * num_rows
        sizes = (a + (num_rows - 1) * (b - a) for a, b in zip(one, two, strict=True))
        return sum(pooled(size) for size in sizes)

    def _kept(self, spec: LayerSpec, num_rows: int) -> list[int]:
        """Returns the sizes in bytes of the tensors that a layer keeps, in their order."""
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
        if self.prepare is not None:
            self.prepare(layer)
        tokens_BT = torch.zeros(num_rows, self.row_tokens - 1, dtype=torch.int64)
        batch = Batch(inputs_BT=tokens_BT, targets_BT=tokens_BT, is_target_BT=tokens_BT > 0)
        x_BTD = torch.randn(*tokens_BT.shape, self.spec.hidden_size, generator=random)
        x_BTD.requires_grad_()
        with _counting(layer) as sizes, computing(self.arithmetic):
            layer(x_BTD, *layer_positions(layer, batch))
        return list(sizes.values())


def pooled(num_bytes: int) -> int:
    """Returns what a tensor of that size takes in the process."""
    return round(num_bytes * _POOLED_SHARE) if num_bytes < _POOLED_BYTES else num_bytes


def choose_layout(size: TrainingSize, num_threads: int) -> tuple[Layout, TrainingMemory]:
    """Returns the fastest layout that fits in memory now, and its prediction. Raises CapacityError
    where even the smallest does not fit, and UnsupportedError for a GPU that PyTorch does not
    see."""
    check_device(size.device)
    available = free_bytes(size.device)
    for layout in layouts(size.step_rows, size.row_tokens, num_threads, size.device):
        memory = size.predict(layout)
        if memory.growth <= available:
            return layout, memory
    memory.require(available)
    return layout, memory


def resident_bytes() -> int:
    """Returns the memory that this process holds now."""
    pages = Path("/proc/self/statm")
    if not pages.exists():
        return 0
    return int(pages.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def _counting(layer: Layer) -> Iterator[dict[int, int]]:
    """Counts the bytes of what autograd keeps, each storage once, without the layer's own."""
    sizes: dict[int, int] = {}
    own = {one.untyped_storage().data_ptr() for one in (*layer.parameters(), *layer.buffers())}
    kept: list[Tensor] = []  # so that no two tensors get the same address

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept.append(tensor)
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        yield sizes
