"""Points: names for the values that pass from one operation of the decoder to the next.

A tap sees the values at each point and may replace them: calibration gathers statistics this way,
and a quantizer of activations rounds there. An expert's points carry its name
("experts.5.down_input") and see only the tokens that were routed to it, [N, I]. An expert without
tokens passes none.
"""

from collections.abc import Callable, Iterable

from torch import Tensor

from paredown.spec.experts import SHARED, split_role

# Called with a point's name and its values; the result replaces the values.
Tap = Callable[[str, Tensor], Tensor]

# The points of a layer, in the order they are passed. At q, k and v the values are split into
# heads, after norms and rotation; scores are the softmax's input and probabilities its output. Sums
# are seen before their norm where they have one (post-norm, BERT).
LAYER_POINTS = (
    "attention_input",
    "q",
    "k",
    "v",
    "scores",
    "probabilities",
    "o_input",
    "attention_output",
    "attention_sum",
    "mlp_input",
    "down_input",
    "mlp_output",
    "mlp_sum",
)
# Those of cross-attention, between "attention_sum" and "mlp_input". Keys and values read the
# encoder's vectors.
CROSS_POINTS = (
    "cross_input",
    "cross_encoded",
    "cross_q",
    "cross_k",
    "cross_v",
    "cross_scores",
    "cross_probabilities",
    "cross_o_input",
    "cross_output",
)
# The points of a layer with cross-attention, in the order they are passed.
_CROSS_PLACE = LAYER_POINTS.index("attention_sum") + 1
ORDERED_POINTS = (*LAYER_POINTS[:_CROSS_PLACE], *CROSS_POINTS, *LAYER_POINTS[_CROSS_PLACE:])
# The points of the whole model: the sum of the embeddings, the output of the last norm, the
# logits.
MODEL_POINTS = ("embedding", "output_input", "logits")

# The point at which each linear layer of a transformer layer reads its input.
INPUT_POINTS = {
    "q": "attention_input",
    "k": "attention_input",
    "v": "attention_input",
    "o": "o_input",
    "gate": "mlp_input",
    "up": "mlp_input",
    "down": "down_input",
}
CROSS_INPUT_POINTS = {
    "cross_q": "cross_input",
    "cross_k": "cross_encoded",
    "cross_v": "cross_encoded",
    "cross_o": "cross_o_input",
}
# Input points by role, with and without cross-attention, in the order in which they are read.
ROLE_POINTS = dict(
    sorted(
        (INPUT_POINTS | CROSS_INPUT_POINTS).items(), key=lambda one: ORDERED_POINTS.index(one[1])
    )
)
# The input of one expert, [N, D].
EXPERT_INPUT = "input"


def input_point(role: str) -> str:
    """Returns the point at which a linear layer reads its input, also for experts. The shared
    expert reads what the router reads."""
    owner, own = split_role(role)
    point = ROLE_POINTS[own]
    if not owner or (owner == SHARED and point == "mlp_input"):
        return point
    return f"{owner}.{EXPERT_INPUT if point == 'mlp_input' else point}"


def last_point(points: Iterable[str]) -> str:
    """Returns the point after which a pass that needs only `points` may end. For experts this is
    after all of them have run."""
    return max(
        ("mlp_output" if "." in point else point for point in points), key=ORDERED_POINTS.index
    )


def untouched(point: str, x: Tensor) -> Tensor:
    """The tap that changes nothing."""
    return x
