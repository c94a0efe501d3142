"""Points: the names of what flows between two operations of the decoder.

At a point a tap may look at the values or put others in their place: calibration gathers statistics
there, and a quantizer of activations rounds there. An expert's points bear its name
("experts.5.down_input"), and what flows there are the rows of the tokens that were sent to it,
[N, I]; one that no token was sent to passes none.
"""

from collections.abc import Callable, Iterable

from torch import Tensor

from paredown.spec.experts import SHARED, split_role

# Called with a point's name and the values there; what it returns goes on in their place.
Tap = Callable[[str, Tensor], Tensor]

# The points of a layer, in the order they are passed. q, k and v are heads, after norms and
# rotation; scores are the softmax's input and probabilities its output.
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
# The points of the whole model: the sum of embeddings before the first layer, the last norm's
# output, the logits.
MODEL_POINTS = ("embedding", "output_input", "logits")

# Where each linear layer of a transformer layer finds its input.
INPUT_POINTS = {
    "q": "attention_input",
    "k": "attention_input",
    "v": "attention_input",
    "o": "o_input",
    "gate": "mlp_input",
    "up": "mlp_input",
    "down": "down_input",
}
# What one expert is given, [N, D].
EXPERT_INPUT = "input"


def input_point(role: str) -> str:
    """Where a linear layer finds its input, those of experts too. The shared expert is given what
    the router is."""
    owner, own = split_role(role)
    point = INPUT_POINTS[own]
    if not owner or (owner == SHARED and point == "mlp_input"):
        return point
    return f"{owner}.{EXPERT_INPUT if point == 'mlp_input' else point}"


def last_point(points: Iterable[str]) -> str:
    """Where a pass may end that is to see these: of experts, when all of them have run."""
    return max(
        ("mlp_output" if "." in point else point for point in points), key=LAYER_POINTS.index
    )


def untouched(point: str, x: Tensor) -> Tensor:
    """The tap of a model that nobody watches."""
    return x
