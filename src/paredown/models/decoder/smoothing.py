"""Smoothing pairs: which part of a transformer layer can hand a factor to the parts that read it.

Dividing the channels that a producer writes and multiplying the columns that read them leaves a
layer's function as it is. That holds where the way from one to the other is linear in each channel
(or, for ReLU, knows factors above zero): a norm and the linear layers after it; v and o, between
which only rows are mixed; up and down, where the gate multiplies or ReLU stands between.

A norm before experts is read by the router too, which stays in floats. Its factors are powers of
two: norm and router change without rounding, and every token goes where it went.
"""

from dataclasses import dataclass

from paredown.spec.experts import SHARED, expert_owner, role_kind
from paredown.spec.model import ModelSpec


@dataclass(frozen=True, kw_only=True)
class SmoothingPair:
    """`producer` and `consumers` are roles, and `followers` those that read the same and are never
    rounded. `repeats` columns of a consumer read one channel: with grouped heads, each run of `run`
    channels (a head) is read that many times in a row."""

    producer: str
    consumers: tuple[str, ...]
    followers: tuple[str, ...] = ()
    repeats: int = 1
    run: int = 1

    @property
    def takes_powers_of_two(self) -> bool:
        """Whether factors must be exact in any float."""
        return bool(self.followers)

    @property
    def name(self) -> str:
        return f"{self.producer} -> {_shortened(self.consumers)}"


def norm_pairs(spec: ModelSpec, layer: int = 0) -> tuple[SmoothingPair, ...]:
    """The pairs that begin at a norm; every layer has both."""
    mlp = ("gate", "up") if spec.gated else ("up",)
    return (
        SmoothingPair(producer="attention_norm", consumers=("q", "k", "v")),
        SmoothingPair(
            producer="mlp_norm",
            consumers=tuple(f"{owner}{role}" for owner in _owners(spec, layer) for role in mlp),
            followers=tuple(spec.router_shapes(layer)),
        ),
    )


def smoothing_pairs(spec: ModelSpec, layer: int = 0) -> tuple[SmoothingPair, ...]:
    """All pairs, in the order of the values' way through the layer."""
    attention, mlp = norm_pairs(spec, layer)
    heads = SmoothingPair(
        producer="v",
        consumers=("o",),
        repeats=spec.num_heads // spec.num_kv_heads,
        run=spec.head_dim,
    )
    if pairs_left_out(spec):
        return attention, heads, mlp
    inner = (
        SmoothingPair(producer=f"{owner}up", consumers=(f"{owner}down",))
        for owner in _owners(spec, layer)
    )
    return attention, heads, mlp, *inner


def pairs_left_out(spec: ModelSpec) -> tuple[str, ...]:
    """What cannot be smoothed in this model and why, in words for the report."""
    if spec.gated or spec.activation == "relu":
        return ()
    return (f"up -> down: {spec.activation} stands between and keeps no factor",)


def _owners(spec: ModelSpec, layer: int) -> list[str]:
    """What the roles of the layer's MLPs begin with."""
    if spec.experts is None or not spec.has_experts(layer):
        return [""]
    owners = [f"{expert_owner(expert)}." for expert in range(spec.experts.num)]
    return owners if spec.experts.shared_intermediate_size is None else [*owners, f"{SHARED}."]


def _shortened(roles: tuple[str, ...]) -> str:
    kinds = dict.fromkeys(map(role_kind, roles))
    return ", ".join(roles if len(roles) == len(kinds) else kinds)
