"""Attention over pages in float64, one query head at a time, and random cases for it.

Letters: T tokens, H query heads, K kv heads, D head_dim.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paredown.kernels import _core
from paredown.kernels.isa import supported_isas
from paredown.spec.kv import PAGE_SIZE

Floats = npt.NDArray[np.float32]

# Pages, blocks of 64 and chunks of 512 keys begin and end around these.
BORDERS = (1, 15, 16, 17, 63, 64, 65, 127, 130, 511, 512, 513, 530, 1024, 1089)

KV_DTYPES = ("fp32", "bf16", "int8", "int4", "fp8", "int8-static", "fp8-static")


def round_bf16(x: Floats) -> Floats:
    """To the nearest bf16, ties to even."""
    bits = x.astype(np.float32).view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    rounded = (bits + np.uint32(0x7FFF) + odd) & np.uint32(0xFFFF0000)
    return rounded.astype(np.uint32).view(np.float32)


# All numbers of e4m3 that are not negative, ascending.
FP8_GRID = np.array(
    [m * 2.0**-9 for m in range(8)]
    + [(8 + m) * 2.0 ** (e - 10) for e in range(1, 16) for m in range(8)]
)[:-1]


def round_fp8(x: Floats) -> npt.NDArray[np.float64]:
    """To the nearest e4m3 number, ties to the even code; beyond 448 to 448."""
    magnitude = np.minimum(np.abs(x.astype(np.float64)), FP8_GRID[-1])
    above = np.clip(np.searchsorted(FP8_GRID, magnitude), 1, len(FP8_GRID) - 1)
    to_above, to_below = FP8_GRID[above] - magnitude, magnitude - FP8_GRID[above - 1]
    takes_above = (to_above < to_below) | ((to_above == to_below) & (above % 2 == 0))
    nearest: npt.NDArray[np.float64] = np.where(takes_above, FP8_GRID[above], FP8_GRID[above - 1])
    return nearest * np.where(x < 0, -1.0, 1.0)


def to_codes(dtype: str, scaled: Floats) -> npt.NDArray[np.float64]:
    """The numbers that codes stand for, before their scale."""
    if dtype == "fp8":
        return round_fp8(scaled)
    low, high = (-128, 127) if dtype == "int8" else (-8, 7)
    return np.rint(np.clip(scaled, low, high)).astype(np.float64)


def stored(dtype: str, x_TKD: Floats, scale_K: Floats | None = None) -> npt.NDArray[np.float64]:
    """What a page gives back for keys or values that were written to it; `scale_K` belongs to the
    static formats."""
    if dtype == "fp32":
        return x_TKD.astype(np.float64)
    if dtype == "bf16":
        return round_bf16(x_TKD).astype(np.float64)
    if dtype.endswith("-static"):
        assert scale_K is not None
        scale = scale_K[:, None]
        codes = to_codes(dtype.removesuffix("-static"), x_TKD / scale)
        return codes * scale.astype(np.float64)
    if dtype == "int4":
        at = np.abs(x_TKD).argmax(axis=-1)[..., None]
        scale = np.take_along_axis(x_TKD, at, axis=-1) / np.float32(-8)
    else:
        most = {"int8": np.float32(127), "fp8": np.float32(448)}[dtype]
        scale = np.abs(x_TKD).max(axis=-1, keepdims=True) / most
    scale = round_bf16(scale.astype(np.float32))
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale != 0)
    return to_codes(dtype, x_TKD * inverse) * scale.astype(np.float64)


def attend(case: "AttentionCase", start: int) -> npt.NDArray[np.float64]:
    """Softmax of q . k over the keys up to each query's own position, or over the first `num_keys`;
    q is scaled already. The first keys are sinks, which are always seen, with the second queries.
    With a cap scores become cap * tanh(score / cap). Column `max_distance + d` of `relative_HD` is
    added to the scores of keys d tokens after the query. The first query is at `start`."""
    keys_TKD = stored(case.dtype, case.k_TKD, case.key_scales)
    values_TKD = stored(case.dtype, case.v_TKD, case.value_scales)
    q_THD, sink_q_THD = case.q_THD[start:], case.sink_q_THD[start:]
    window, num_sinks, soft_cap = case.window, case.num_sinks, case.soft_cap
    num_keys, relative_HD = case.num_keys, case.relative_HD
    num_tokens, num_heads, _ = q_THD.shape
    group = num_heads // keys_TKD.shape[1]
    output = np.empty(q_THD.shape, dtype=np.float64)
    for t in range(num_tokens):
        position = start + t
        first = max(num_sinks, position - window + 1 if window else 0)
        sinks = np.arange(min(num_sinks, position + 1))
        end = position + 1
        if num_keys is not None:
            end = min(num_keys, position + window) if window else num_keys
        others = np.arange(first, end)
        seen = np.concatenate([sinks, others])
        for head in range(num_heads):
            keys_ND = keys_TKD[:, head // group]
            scores = np.concatenate(
                [
                    keys_ND[sinks] @ sink_q_THD[t, head].astype(np.float64),
                    keys_ND[others] @ q_THD[t, head].astype(np.float64),
                ]
            )
            if relative_HD is not None:
                reach = relative_HD.shape[1] // 2
                distances = np.clip(seen - position, -reach, reach)
                scores = scores + relative_HD[head, reach + distances].astype(np.float64)
            if soft_cap:
                scores = soft_cap * np.tanh(scores / soft_cap)
            weights = np.exp(scores - scores.max())
            output[t, head] = weights @ values_TKD[seen, head // group] / weights.sum()
    return output


@dataclass(frozen=True, kw_only=True)
class AttentionCase:
    """One sequence: queries for all of its tokens, for sinks others, keys, values, and the pages
    they lie on. Queries that see later keys see the first `num_keys`."""

    dtype: str
    window: int
    q_THD: Floats
    k_TKD: Floats
    v_TKD: Floats
    pages: npt.NDArray[np.int32]
    sink_q_THD: Floats
    num_sinks: int = 0
    soft_cap: float = 0.0
    num_keys: int | None = None
    relative_HD: Floats | None = None

    @property
    def num_tokens(self) -> int:
        return len(self.q_THD)

    def core(self, isa: str, num_threads: int = 1, num_pages: int | None = None) -> _core.Attention:
        """A core that holds this case's keys and values."""
        _, num_heads, head_dim = self.q_THD.shape
        pages = int(self.pages.max()) + 1 if num_pages is None else num_pages
        core = _core.Attention(
            isa, num_threads, self.dtype, num_heads, self.k_TKD.shape[1], head_dim, self.window,
            pages, self.num_sinks, self.soft_cap, self.num_keys is None,
        )  # fmt: skip
        if self.relative_HD is not None:
            core.set_relative(self.relative_HD)
        core.set_scales([*self.key_scales.tolist(), *self.value_scales.tolist()])
        self.write(core)
        return core

    @property
    def key_scales(self) -> Floats:
        """Of the static formats: a scale that clamps some of what is drawn for int8."""
        return (0.01 * np.arange(1, self.k_TKD.shape[1] + 1)).astype(np.float32)

    @property
    def value_scales(self) -> Floats:
        return self.key_scales * np.float32(1.7)

    def write(self, core: _core.Attention) -> None:
        flat = (self.num_tokens, -1)
        core.write(self.pages, 0, self.k_TKD.reshape(flat), self.v_TKD.reshape(flat))

    def expected(self, start: int = 0) -> npt.NDArray[np.float64]:
        return attend(self, start)


def random_attention(
    rng: np.random.Generator,
    dtype: str,
    *,
    num_tokens: int,
    num_kv_heads: int = 2,
    heads_per_kv: int = 2,
    head_dim: int = 32,
    window: int = 0,
    pages: npt.NDArray[np.int32] | None = None,
) -> AttentionCase:
    def normal(num_heads: int) -> Floats:
        return rng.normal(size=(num_tokens, num_heads, head_dim)).astype(np.float32)

    num_pages = -(-num_tokens // PAGE_SIZE)
    return AttentionCase(
        dtype=dtype,
        window=window,
        q_THD=normal(num_kv_heads * heads_per_kv) / np.float32(np.sqrt(head_dim)),
        k_TKD=normal(num_kv_heads),
        v_TKD=normal(num_kv_heads),
        pages=rng.permutation(num_pages).astype(np.int32) if pages is None else pages,
        sink_q_THD=normal(num_kv_heads * heads_per_kv) / np.float32(np.sqrt(head_dim)),
    )


def run_slices(core: _core.Attention, slices: list[tuple[AttentionCase, int, int]]) -> Floats:
    """Outputs [T, H, D] of tokens [begin, end) of each case, all in one call."""
    queries = np.concatenate([case.q_THD[begin:end] for case, begin, end in slices])
    sink_queries = np.concatenate([case.sink_q_THD[begin:end] for case, begin, end in slices])
    flat = np.ascontiguousarray(queries.reshape(len(queries), -1))
    output = np.full(flat.shape, np.nan, dtype=np.float32)
    num_keys = [case.num_keys for case, _, _ in slices]
    offsets = np.cumsum([0, *(len(case.pages) for case, _, _ in slices)])
    core.run(
        np.array([begin for _, begin, _ in slices], dtype=np.int32),
        np.array([end - begin for _, begin, end in slices], dtype=np.int32),
        offsets.astype(np.int32),
        np.concatenate([case.pages for case, _, _ in slices]),
        flat,
        output,
        np.ascontiguousarray(sink_queries.reshape(flat.shape)),
        None if any(one is None for one in num_keys) else np.array(num_keys, dtype=np.int32),
    )
    return output.reshape(queries.shape)


def tolerance_of(isa: str, dtype: str) -> float:
    """bf16 tiles, those of fp8 pages too, multiply queries and weights as two bf16 numbers each, 16
    bits: the widest heads lose some 2^-16. Floats and the three digits of bytes keep more."""
    return 3e-5 if isa == "amx" and dtype in ("bf16", "fp8") else 1e-5


def assert_close(case: AttentionCase, start: int = 0) -> None:
    """Runs every instruction set; the reference, which takes longer than all of them, once."""
    expected = case.expected(start)
    for isa in supported_isas():
        tolerance = tolerance_of(isa, case.dtype)
        output = run_slices(case.core(isa), [(case, start, case.num_tokens)])
        np.testing.assert_allclose(
            output, expected, rtol=tolerance, atol=tolerance, err_msg=f"on {isa}"
        )
