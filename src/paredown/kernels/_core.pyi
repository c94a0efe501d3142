from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

VERSION: str
INTERFACE: str
LAYOUT_VERSION: int
MAX_DECODE_TOKENS: int
MAX_EXPERTS: int
MAX_HEAD_DIM: int
MAX_SIZE: int
MAX_THREADS: int

class ThreadError(RuntimeError):
    """The system cannot start more threads."""

def hash_chunks(bytes: npt.NDArray[np.uint8], chunk_bytes: int, num_threads: int) -> list[int]: ...
def supported_isas() -> list[str]: ...
def known_isas() -> list[tuple[str, str]]: ...
def bitmap_pays(value_bits: int, num_numbers: int, num_zeros: int) -> bool: ...
def linear_forms(isa: str) -> list[tuple[str, str]]: ...
def attention_forms(isa: str) -> list[tuple[str, str]]: ...
def measure_peak(isa: str, num_threads: int, unit: str) -> list[float]: ...
def measure_bandwidth(isa: str, num_threads: int, num_bytes: int) -> list[float]: ...
def measure_region(isa: str, num_threads: int, num_regions: int, num_operations: int) -> float: ...
def step_bytes(config: dict[str, object], num_threads: int, num_tokens: int) -> int: ...
def encode_bytes(config: dict[str, object], num_threads: int, max_tokens: int) -> int: ...

class Model:
    def __init__(
        self, config: dict[str, object], isa: str, prefill_threads: int, decode_threads: int
    ) -> None: ...
    @property
    def isa(self) -> str: ...
    @property
    def weight_bytes(self) -> int: ...
    @property
    def step_bytes(self) -> int: ...
    @property
    def sampler(self) -> Sampler: ...
    def add_linear(self, role: str, layer: int, weight: dict[str, object]) -> None: ...
    def set_norm(self, role: str, layer: int, weight: list[float], bias: list[float]) -> None: ...
    def set_kv_scales(self, layer: int, keys: list[float], values: list[float]) -> None: ...
    def set_embedding(self, kind: str, values: npt.NDArray[np.generic]) -> None: ...
    def set_positions(self, kind: str, values: npt.NDArray[np.generic], offset: int) -> None: ...
    def set_token_types(self, kind: str, values: npt.NDArray[np.generic]) -> None: ...
    def set_relative(self, values: npt.NDArray[np.float32]) -> None: ...
    def tie_embedding(self) -> None: ...
    def check_weights(self) -> None: ...
    def packed_linears(
        self,
    ) -> list[tuple[str, int, dict[str, object], npt.NDArray[np.uint8]]]: ...
    def borrow_linear(
        self, role: str, layer: int, shape: dict[str, object], bytes: npt.NDArray[np.uint8]
    ) -> None: ...
    def borrow_embedding(self, kind: str, bytes: npt.NDArray[np.uint8]) -> None: ...
    def borrow_positions(self, kind: str, bytes: npt.NDArray[np.uint8], offset: int) -> None: ...
    def borrow_token_types(self, kind: str, bytes: npt.NDArray[np.uint8]) -> None: ...
    def copy_pages(self, pairs: npt.NDArray[np.int32]) -> None: ...
    def step(
        self,
        tokens: list[int],
        starts: list[int],
        lengths: list[int],
        num_logits: list[int],
        pages: list[Sequence[int]],
        num_released: list[int],
        text_lengths: Sequence[int],
        cross_pages: list[Sequence[int]],
        cross_lengths: Sequence[int],
        logits: npt.NDArray[np.float32],
    ) -> None: ...
    def write_cross(
        self, vectors: npt.NDArray[np.float32], lengths: list[int], pages: list[Sequence[int]]
    ) -> None: ...
    def encode(
        self,
        tokens: list[int],
        types: list[int],
        lengths: list[int],
        num_unseen: list[int],
        output: str,
    ) -> npt.NDArray[np.float32]: ...
    def write_drafts(
        self,
        tokens: list[int],
        starts: list[int],
        lengths: list[int],
        pages: list[Sequence[int]],
        text_lengths: Sequence[int],
        states: list[SamplingState],
        num_draft_tokens: list[int],
    ) -> list[list[int]]: ...

class Linear:
    def __init__(self, isa: str, num_threads: int, weight: dict[str, object]) -> None: ...
    @property
    def num_bytes(self) -> int: ...
    def form(self, num_tokens: int) -> str: ...
    def read_row(self, row: int, values: npt.NDArray[np.float32]) -> None: ...
    def run(self, input: npt.NDArray[np.float32], output: npt.NDArray[np.float32]) -> None: ...

class Attention:
    def __init__(
        self,
        isa: str,
        num_threads: int,
        kv_dtype: str,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        window: int,
        num_pages: int,
        num_sinks: int = 0,
        soft_cap: float = 0.0,
        is_causal: bool = True,
    ) -> None: ...
    @property
    def num_bytes(self) -> int: ...
    def set_scales(self, scales: list[float]) -> None: ...
    def set_relative(self, values: npt.NDArray[np.float32]) -> None: ...
    def write(
        self,
        pages: npt.NDArray[np.int32],
        start: int,
        keys: npt.NDArray[np.float32],
        values: npt.NDArray[np.float32],
    ) -> None: ...
    def run(
        self,
        starts: npt.NDArray[np.int32],
        lengths: npt.NDArray[np.int32],
        page_offsets: npt.NDArray[np.int32],
        pages: npt.NDArray[np.int32],
        queries: npt.NDArray[np.float32],
        outputs: npt.NDArray[np.float32],
        sink_queries: npt.NDArray[np.float32] | None = None,
        num_keys: npt.NDArray[np.int32] | None = None,
    ) -> None: ...

class SamplingState:
    def __init__(
        self, settings: dict[str, object], vocab_size: int, prompt: npt.NDArray[np.int32]
    ) -> None: ...
    @property
    def num_tokens(self) -> int: ...
    @property
    def vocab_size(self) -> int: ...
    def push(self, token: int) -> None: ...
    def pop(self) -> None: ...
    def allow_next(self, tokens: npt.NDArray[np.int32]) -> None: ...
    def mask_next(self, masks: npt.NDArray[np.uint32]) -> None: ...

Row = tuple[int, tuple[float, list[tuple[int, float]]] | None]

class Sampler:
    def sample(
        self, logits: npt.NDArray[np.float32], states: list[SamplingState]
    ) -> tuple[list[int], dict[int, Row]]: ...
    def sample_runs(
        self,
        logits: npt.NDArray[np.float32],
        first_rows: list[int],
        drafts: list[Sequence[int]],
        states: list[SamplingState],
    ) -> list[list[tuple[int, int, tuple[float, list[tuple[int, float]]] | None]]]: ...
    def distribution(
        self,
        logits: npt.NDArray[np.float32],
        state: SamplingState,
        probs: npt.NDArray[np.float64],
    ) -> int: ...
    def logprobs(
        self, logits: npt.NDArray[np.float32], tokens: npt.NDArray[np.int32], num_top: int
    ) -> list[Row]: ...

class SuffixMatch:
    @property
    def length(self) -> int: ...
    @property
    def places(self) -> list[tuple[int, int]]: ...

class SuffixIndex:
    MAX_MATCH: int
    MAX_PLACES: int
    MIN_BEFORE_CHANGE: int
    def __init__(self, *, min_match: int, max_match: int = ..., max_places: int = ...) -> None: ...
    @property
    def num_runs(self) -> int: ...
    @property
    def num_sequences(self) -> int: ...
    def update(self, sequence: int, token_ids: list[int]) -> None: ...
    def remove(self, sequence: int) -> None: ...
    def find(self, token_ids: list[int]) -> SuffixMatch | None: ...
    def continue_from(
        self, match: SuffixMatch, max_tokens: int, *, own: int | None
    ) -> list[int]: ...

class PooledSampler(Sampler):
    def __init__(self, isa: str, num_threads: int) -> None: ...

MAX_VECTOR_DIMS: int
MAX_VECTORS: int
VECTOR_UNIT: int

def vector_bytes(dtype: str, num_vectors: int, num_dims: int) -> int: ...
def pack_vectors(
    dtype: str,
    vectors: npt.NDArray[np.float32],
    values: npt.NDArray[np.uint8],
    scales: npt.NDArray[np.float32],
) -> None: ...
def unpack_vectors(
    dtype: str,
    values: npt.NDArray[np.uint8],
    scales: npt.NDArray[np.float32],
    vectors: npt.NDArray[np.float32],
) -> None: ...

class VectorSearch:
    def __init__(
        self,
        isa: str,
        num_threads: int,
        dtype: str,
        num_vectors: int,
        num_dims: int,
        values: npt.NDArray[np.uint8],
        scales: npt.NDArray[np.float32] | None,
        offsets: npt.NDArray[np.int64] | None,
    ) -> None: ...
    def top(
        self,
        queries: npt.NDArray[np.float32],
        scores: npt.NDArray[np.float32],
        numbers: npt.NDArray[np.int64],
    ) -> None: ...
    def top_max_sim(
        self,
        tokens: npt.NDArray[np.float32],
        query_offsets: npt.NDArray[np.int64],
        scores: npt.NDArray[np.float32],
        numbers: npt.NDArray[np.int64],
    ) -> None: ...

class CoilSearch:
    def __init__(
        self,
        isa: str,
        num_threads: int,
        dtype: str,
        num_dims: int,
        values: npt.NDArray[np.uint8],
        scales: npt.NDArray[np.float32] | None,
        offsets: npt.NDArray[np.int64],
        documents: npt.NDArray[np.uint32],
        num_documents: int,
        num_cls_dims: int,
        cls_values: npt.NDArray[np.uint8] | None,
        cls_scales: npt.NDArray[np.float32] | None,
    ) -> None: ...
    def top(
        self,
        tokens: npt.NDArray[np.float32],
        lists: npt.NDArray[np.int64],
        query_offsets: npt.NDArray[np.int64],
        cls: npt.NDArray[np.float32] | None,
        scores: npt.NDArray[np.float32],
        numbers: npt.NDArray[np.int64],
    ) -> None: ...
