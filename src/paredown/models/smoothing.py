"""Smoothing pairs: which part of a transformer layer can hand a factor to the parts that read it.

Dividing the channels that a producer writes and multiplying the columns that read them leaves a
layer's function as it is. That holds where the way from one to the other is linear in each channel
(or, for ReLU, knows factors above zero): a norm and the linear layers after it; v and o, between
which only rows are mixed; up and down, where the gate multiplies or ReLU stands between.
"""

from dataclasses import dataclass

from paredown.spec.model import ModelSpec


@dataclass(frozen=True, kw_only=True)
class SmoothingPair:
    """`producer` and `consumers` are roles. `repeats` columns of a consumer read one channel: with
    grouped heads, each run of `run` channels (a head) is read that many times in a row."""

    producer: str
    consumers: tuple[str, ...]
    repeats: int = 1
    run: int = 1

    @property
    def name(self) -> str:
        return f"{self.producer} -> {', '.join(self.consumers)}"


def norm_pairs(spec: ModelSpec) -> tuple[SmoothingPair, ...]:
    """The pairs that begin at a norm; every spec has both."""
    mlp = ("gate", "up") if spec.gated else ("up",)
    return (
        SmoothingPair(producer="attention_norm", consumers=("q", "k", "v")),
        SmoothingPair(producer="mlp_norm", consumers=mlp),
    )


def smoothing_pairs(spec: ModelSpec) -> tuple[SmoothingPair, ...]:
    """All pairs, in the order of the values' way through the layer."""
    attention, mlp = norm_pairs(spec)
    heads = SmoothingPair(
        producer="v",
        consumers=("o",),
        repeats=spec.num_heads // spec.num_kv_heads,
        run=spec.head_dim,
    )
    if pairs_left_out(spec):
        return attention, heads, mlp
    return attention, heads, mlp, SmoothingPair(producer="up", consumers=("down",))


def pairs_left_out(spec: ModelSpec) -> tuple[str, ...]:
    """What cannot be smoothed in this model and why, in words for the report."""
    if spec.gated or spec.activation == "relu":
        return ()
    return (f"up -> down: {spec.activation} stands between and keeps no factor",)
