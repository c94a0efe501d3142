"""NativeModel: the C++ core's model, filled weight by weight and stepped with plain arrays."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from paredown.errors import CapacityError
from paredown.kernels import _core
from paredown.kernels.bitmap_choice import chosen_bitmap
from paredown.kernels.blob_fields import blob_fields
from paredown.kernels.core_config import core_config
from paredown.kernels.isa import chosen_isa
from paredown.kernels.linear_source import LinearSource
from paredown.kernels.native_sampler import Sampler, SamplingState
from paredown.kernels.packed_file import Blob
from paredown.kernels.thread_plan import ThreadPlan
from paredown.spec.context import Context
from paredown.spec.kv import KVScales, KVSpec
from paredown.spec.model import ModelSpec
from paredown.spec.weight import WeightDType

Ints = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]
# For each slice of a step the pages of the text that it reads across, and the text's length.
Across = tuple[list[Sequence[int]], Sequence[int]]

# The fields of a blob in addition to its part.
_BLOB_TYPES: dict[str, dict[str, type]] = {
    "linear": {"role": str, "layer": int, "shape": dict},
    "embedding": {"kind": str},
    "positions": {"kind": str, "offset": int},
    "token_types": {"kind": str},
    "relative": {},
    "norm.weight": {"role": str, "layer": int},
    "norm.bias": {"role": str, "layer": int},
}


class NativeModel:
    """The C++ core's model. It takes weights and gives logits, and knows nothing of files or
    requests."""

    def __init__(
        self,
        context: Context,
        kv: KVSpec,
        threads: ThreadPlan,
        kv_scales: Mapping[int, KVScales] | None = None,
    ) -> None:
        """`kv_scales` holds the static scales of keys and values by layer, if there are any.
        Raises UnsupportedError for a model that the core does not run, and CapacityError if the
        system cannot start more threads."""
        self.context = context
        self._threads = threads
        try:
            self._core = _core.Model(
                core_config(context, kv), chosen_isa(), threads.prefill, threads.decode
            )
        except _core.ThreadError as error:
            raise CapacityError(
                "threads cannot be started",
                seen=error,
                remedy="Use fewer with --threads, or raise the limit of processes (ulimit -u).",
            ) from error
        self._kv_scales = {} if kv_scales is None else dict(kv_scales)
        for layer, scales in self._kv_scales.items():
            self._core.set_kv_scales(layer, list(scales.keys), list(scales.values))
        # Norms and tables as they were given; `packed` adds them to the linear layers.
        self._blobs: list[Blob] = []

    @property
    def spec(self) -> ModelSpec:
        return self.context.spec

    @property
    def isa(self) -> str:
        return self._core.isa

    @property
    def threads(self) -> ThreadPlan:
        return self._threads

    @property
    def sampler(self) -> Sampler:
        """The sampler on the model's threads. It must not be used while a step runs."""
        return self._core.sampler

    @property
    def weight_bytes(self) -> int:
        """The bytes of packed weights that one decode step reads."""
        return self._core.weight_bytes

    @property
    def step_bytes(self) -> int:
        """The bytes of working memory that steps have taken so far."""
        return self._core.step_bytes

    def add_linear(self, role: str, layer: int, weight: LinearSource) -> None:
        """Adds a weight to a role: qkv, o, up, down, output; in a layer with experts router,
        shared_gate, experts.5.up, shared.down, ... Weights of one role read the same input, and
        their outputs lie side by side. The arrays are packed now and not kept. Where the
        weight leaves open what becomes of its zeros, PAREDOWN_BITMAP may say it."""
        if weight.bitmap == "auto":
            weight = replace(weight, bitmap=chosen_bitmap())
        self._core.add_linear(role, layer, weight.fields())

    def set_norm(
        self,
        role: str,
        layer: int,
        weight: npt.NDArray[np.float32],
        bias: npt.NDArray[np.float32] | None,
    ) -> None:
        self._core.set_norm(role, layer, weight.tolist(), [] if bias is None else bias.tolist())
        for part, values in (("weight", weight), ("bias", bias)):
            if values is not None:
                fields = {"part": f"norm.{part}", "role": role, "layer": layer}
                self._blobs.append(Blob(fields=fields, data=_bytes_of(values)))

    def set_embedding(self, dtype: WeightDType, values_VH: npt.NDArray[np.generic]) -> None:
        self._core.set_embedding(dtype, values_VH)
        fields = {"part": "embedding", "kind": dtype}
        self._blobs.append(Blob(fields=fields, data=_bytes_of(values_VH)))

    def tie_embedding(self) -> None:
        """Makes the output layer, which must exist already, the embedding too: rows are read from
        its panels. An embedding of its own is packed with the role "embedding"."""
        self._core.tie_embedding()

    def set_positions(
        self, dtype: WeightDType, values_PH: npt.NDArray[np.generic], offset: int
    ) -> None:
        """Sets learned positions: the token at position p adds row p + offset."""
        self._core.set_positions(dtype, values_PH, offset)
        fields = {"part": "positions", "kind": dtype, "offset": offset}
        self._blobs.append(Blob(fields=fields, data=_bytes_of(values_PH)))

    def set_token_types(self, dtype: WeightDType, values_TH: npt.NDArray[np.generic]) -> None:
        self._core.set_token_types(dtype, values_TH)
        fields = {"part": "token_types", "kind": dtype}
        self._blobs.append(Blob(fields=fields, data=_bytes_of(values_TH)))

    def set_relative(self, values_HD: npt.NDArray[np.float32]) -> None:
        """Sets what relative positions add to scores, by head and distance (relative_table.py)."""
        self._core.set_relative(values_HD)
        self._blobs.append(Blob(fields={"part": "relative"}, data=_bytes_of(values_HD)))

    def check_weights(self) -> None:
        """Raises ValueError unless every weight is present with the sizes of the spec."""
        self._core.check_weights()

    def packed(self) -> list[Blob]:
        """Returns everything that was added, with linear layers as packed, in the form that
        `borrow` takes. The blobs are views that keep the model alive."""
        linears = [
            Blob(fields={"part": "linear", "role": role, "layer": layer, "shape": shape}, data=data)
            for role, layer, shape, data in self._core.packed_linears()
        ]
        return linears + self._blobs

    def sharing(self, kv: KVSpec, *, keeps_sinks: bool = True) -> "NativeModel":
        """Returns another model on the same weights with its own pages. It has the attention sinks
        of this one, if any, unless `keeps_sinks` is false."""
        context = self.context if keeps_sinks else Context(spec=self.spec)
        other = NativeModel(context, kv, self._threads, self._kv_scales)
        other.borrow(self.packed())
        return other

    def borrow(self, blobs: Iterable[Blob]) -> None:
        """Fills an empty model with the packed weights of another one of the same spec. The model
        keeps the arrays; norms are copied. Raises ValueError for blobs that do not make up the
        spec."""
        norms: dict[tuple[str, int], dict[str, list[float]]] = {}
        tables = set[str]()
        for blob in blobs:
            part = blob.fields.get("part")
            if not isinstance(part, str) or part not in _BLOB_TYPES:
                raise ValueError(f"a blob of an unknown part {str(part)[:40]!r}")
            fields = blob_fields(blob.fields, {"part": str, **_BLOB_TYPES[part]})
            del fields["part"]
            if part.startswith("norm."):
                norm = norms.setdefault((fields["role"], fields["layer"]), {})
                if part in norm:
                    raise ValueError(f"two blobs of {fields['role']}'s {part}")
                norm[part] = blob.data.view(np.float32).tolist()
            else:
                self._borrow(part, fields, blob.data, tables)
            if part != "linear":
                self._blobs.append(blob)
        for (role, layer), norm in norms.items():
            if "norm.weight" not in norm:
                raise ValueError(f"{role} has a bias and no weight")
            self._core.set_norm(role, layer, norm["norm.weight"], norm.get("norm.bias", []))
        if ("positions" in tables) != (self.spec.embedding.positions is not None):
            raise ValueError("a table of positions is missing, or belongs to another model")
        if "embedding" not in tables and (self.spec.is_tied or not self.spec.generates):
            self._core.tie_embedding()
        self._core.check_weights()

    def _borrow(self, part: str, fields: dict[str, Any], data: Bytes, tables: set[str]) -> None:
        """Borrows any blob except a norm. `tables` are the parts seen so far; a second blob of the
        same part would replace the first."""
        if part == "linear":
            self._core.borrow_linear(**fields, bytes=data)
        table = fields["role"] if part == "linear" else part
        if table not in ("embedding", "positions", "token_types", "relative"):
            return
        if table in tables:
            raise ValueError(f"two blobs of the {table}")
        tables.add(table)
        if part == "embedding":
            self._core.borrow_embedding(**fields, bytes=data)
        elif part == "token_types":
            self._core.borrow_token_types(**fields, bytes=data)
        elif part == "relative":
            shape = self.spec.relative_shape
            if shape is None:
                raise ValueError("there are relative positions that the model has not")
            self._core.set_relative(data.view(np.float32).reshape(shape[1], -1))
        elif part == "positions":
            learned = self.spec.embedding.positions
            if learned is None or fields["offset"] != learned.offset:
                raise ValueError("the table of positions is not that of this model")
            self._core.borrow_positions(**fields, bytes=data)

    def copy_pages(self, pairs: Ints) -> None:
        """Copies pages in all layers, in order: from pairs[0] to pairs[1], from pairs[2] to
        pairs[3], ..."""
        self._core.copy_pages(pairs)

    def step(
        self,
        tokens: list[int],
        starts: list[int],
        lengths: list[int],
        num_logits: list[int],
        pages: list[Sequence[int]],
        num_released: list[int],
        text_lengths: Sequence[int] = (),
        across: Across | None = None,
    ) -> npt.NDArray[np.float32]:
        """Runs one batched step. StepInput in csrc/model/model.h describes the lists; `across` are
        cross_pages and cross_lengths.

        The pages of each slice are a list, or an array of 32-bit integers, which is read in place.
        Returns logits [sum of num_logits, vocab_size].
        """
        logits = np.empty((sum(num_logits), self.spec.vocab_size), dtype=np.float32)
        self._core.step(
            tokens,
            starts,
            lengths,
            num_logits,
            pages,
            num_released,
            text_lengths,
            *(([], ()) if across is None else across),
            logits,
        )
        return logits

    def encode(
        self,
        tokens: list[int],
        types: list[int],
        lengths: list[int],
        num_unseen: list[int],
        output: Literal["head", "tokens"],
    ) -> npt.NDArray[np.float32]:
        """Encodes whole texts. EncodeInput in csrc/model/model.h describes the lists. Returns
        [rows, size]: what the head makes of the texts, or the vectors of all tokens after the final
        norm. Raises ValueError for texts that the model does not take."""
        return self._core.encode(tokens, types, lengths, num_unseen, output)

    def write_cross(
        self,
        vectors_TH: npt.NDArray[np.float32],
        lengths: list[int],
        pages: list[Sequence[int]],
    ) -> None:
        """Writes the keys and values that cross-attention has of an encoder's vectors, in all
        layers. The texts lie one after the other, and each has pages of its own. Raises ValueError
        for pages that do not exist or are too few; nothing is written then."""
        self._core.write_cross(vectors_TH, lengths, pages)

    def write_drafts(
        self,
        tokens: list[int],
        starts: list[int],
        lengths: list[int],
        pages: list[Sequence[int]],
        states: list[SamplingState],
        num_draft_tokens: list[int],
        text_lengths: Sequence[int] = (),
    ) -> list[list[int]]:
        """Runs one step and continues each slice for `num_draft_tokens` tokens, drawn by its
        state. DraftInput in csrc/model/draft.h describes the lists."""
        return self._core.write_drafts(
            tokens, starts, lengths, pages, text_lengths, states, num_draft_tokens
        )


def planned_step_bytes(context: Context, kv: KVSpec, num_threads: int, num_tokens: int) -> int:
    """Returns the most that `NativeModel.step_bytes` can become with steps of `num_tokens` tokens.
    Steps take less only where no threads share a context (csrc/model/attention_runner.h)."""
    # Pages beyond those of one text add nothing, and a user may ask for any number.
    num_pages = min(kv.num_pages, context.max_request_tokens)
    config = core_config(context, replace(kv, num_pages=num_pages))
    return _core.step_bytes(config, num_threads, num_tokens)


def planned_encode_bytes(context: Context, kv: KVSpec, num_threads: int, max_tokens: int) -> int:
    """Returns the most that `NativeModel.step_bytes` can become by encoding texts of at most
    `max_tokens` tokens."""
    return _core.encode_bytes(core_config(context, kv), num_threads, max_tokens)


def _bytes_of(values: npt.NDArray[np.generic]) -> npt.NDArray[np.uint8]:
    return values.reshape(-1).view(np.uint8)
