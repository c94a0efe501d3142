"""Smoothing pairs: which parts of a transformer layer can pass a factor to the parts that read
them.

A layer's function does not change when the channels that a producer writes are divided and the
columns that read them are multiplied. This needs a path that is linear in each channel or, for
ReLU, scales with positive factors. Such paths are: a norm and the linear layers after it; v and o,
since attention mixes only rows; up and down, with a gate or ReLU between.

A norm after a sum (post-norm, BERT) is no producer: its output is also the residual of the next
sum, which the norm after that mixes over all channels. A factor there would have to be taken back
in the residual, and no format has a place for it.

Cross-attention has a norm for its queries, and its own v and o. Its keys and values read the
encoder's vectors, as in all other layers, so the encoder's last norm is no producer for one layer.

The router also reads the norm before experts and stays in floats. That norm's factors are powers of
two, so norm and router change without rounding and the routing stays the same.
"""

from dataclasses import dataclass

from paredown.spec.experts import role_kind
from paredown.spec.layer import LayerSpec
from paredown.spec.roles import QKV_ROLES


@dataclass(frozen=True, kw_only=True)
class SmoothingPair:
    """`producer` and `consumers` are roles; `followers` read the same channels and are never
    rounded. `repeats` columns of a consumer read one channel: with grouped heads, each run of `run`
    channels (a head) is read that many times in a row."""

    producer: str
    consumers: tuple[str, ...]
    followers: tuple[str, ...] = ()
    repeats: int = 1
    run: int = 1

    @property
    def takes_powers_of_two(self) -> bool:
        """Returns whether factors must be exact in any float format."""
        return bool(self.followers)

    @property
    def name(self) -> str:
        return f"{self.producer} -> {_shortened(self.consumers)}"


def norm_pairs(layer: LayerSpec) -> tuple[SmoothingPair, ...]:
    """Returns the pairs whose producer is the norm before attention, cross-attention or the MLP."""
    pairs = []
    # A norm that the MLP reads too has more consumers than the linear layers that share one input.
    if layer.norms.attention is not None and layer.residual != "parallel_one_norm":
        pairs.append(SmoothingPair(producer="attention_norm", consumers=QKV_ROLES))
    if layer.norms.cross is not None:
        pairs.append(SmoothingPair(producer="cross_norm", consumers=("cross_q",)))
    if layer.norms.mlp is not None:
        roles = ("gate", "up") if layer.mlp.is_gated else ("up",)
        pairs.append(
            SmoothingPair(
                producer="mlp_norm",
                consumers=tuple(f"{owner}{role}" for owner in _owners(layer) for role in roles),
                followers=layer.experts.router_roles if layer.experts is not None else (),
            )
        )
    return tuple(pairs)


def input_pairs(layer: LayerSpec) -> tuple[SmoothingPair, ...]:
    """Returns the pairs of norms; in a layer whose inputs no norm scales, v and o."""
    return norm_pairs(layer) or (_heads_pair(layer),)


def smoothing_pairs(layer: LayerSpec) -> tuple[SmoothingPair, ...]:
    """Returns all pairs in the order in which values pass through the layer."""
    norms = {pair.producer: pair for pair in norm_pairs(layer)}
    inner = (
        SmoothingPair(producer=f"{owner}up", consumers=(f"{owner}down",))
        for owner in _owners(layer)
    )
    before, across, after = map(norms.get, ("attention_norm", "cross_norm", "mlp_norm"))
    heads, crossed = _heads_pair(layer), _cross_heads_pair(layer)
    found = (before, heads, across, crossed, after, *(() if _blocks_factors(layer) else inner))
    return tuple(pair for pair in found if pair is not None)


def pairs_left_out(layer: LayerSpec) -> tuple[str, ...]:
    """Returns a sentence for the report on each part of this layer that cannot be smoothed, and
    why."""
    notes = []
    if layer.norms.attention_sum is not None:
        notes.append("q, k, v, up: their input is the residual too, which keeps no factor")
    if layer.cross is not None:
        notes.append("cross_k, cross_v: all layers read the encoder's vectors, in one scale")
    if _blocks_factors(layer):
        notes.append(f"up -> down: {layer.mlp.activation} stands between and keeps no factor")
    return tuple(notes)


def _blocks_factors(layer: LayerSpec) -> bool:
    """Returns whether what stands between up and down changes when its input is scaled."""
    return not (layer.mlp.is_gated or layer.mlp.activation == "relu")


def _heads_pair(layer: LayerSpec) -> SmoothingPair:
    attention = layer.attention
    return SmoothingPair(
        producer="v",
        consumers=("o",),
        repeats=attention.num_heads_per_group,
        run=attention.head_dim,
    )


def _cross_heads_pair(layer: LayerSpec) -> SmoothingPair | None:
    cross = layer.cross
    if cross is None:
        return None
    return SmoothingPair(
        producer="cross_v",
        consumers=("cross_o",),
        repeats=cross.num_heads_per_group,
        run=cross.head_dim,
    )


def _owners(layer: LayerSpec) -> list[str]:
    """Returns the prefixes of the roles of the layer's MLPs."""
    return [f"{owner}." for owner in layer.experts.owners] if layer.experts is not None else [""]


def _shortened(roles: tuple[str, ...]) -> str:
    kinds = dict.fromkeys(map(role_kind, roles))
    return ", ".join(roles if len(roles) == len(kinds) else kinds)
