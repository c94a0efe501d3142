"""Each loss of features is its formula in float64, and so are its gradients."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from paredown.distill.batch import Batch
from paredown.distill.features.attention_scores import Heads, attention_losses
from paredown.distill.features.boundaries import boundary_losses
from paredown.distill.features.gradients import gradient_losses
from paredown.distill.features.hidden_states import hidden_losses
from paredown.distill.features.weights import weight_loss
from paredown.spec.attention import Attention
from references import features as reference

RANDOM = torch.Generator().manual_seed(5)


def drawn(*sizes: int) -> Tensor:
    return torch.randn(*sizes, generator=RANDOM, dtype=torch.float64)


OWN, TAUGHT, STATE, MAP = drawn(4, 3), drawn(4, 5), drawn(4, 5), drawn(5, 3)
WEIGHT, TAUGHT_WEIGHT, LEFT, RIGHT = drawn(2, 3), drawn(4, 5), drawn(4, 2), drawn(5, 3)


def close(found: Tensor, expected: list[float]) -> None:
    torch.testing.assert_close(found, torch.tensor(expected).double(), rtol=0, atol=1e-6)


def smooth(function: Callable[..., Tensor], *inputs: Tensor) -> bool:
    return bool(
        torch.autograd.gradcheck(function, [one.clone().requires_grad_() for one in inputs])
    )


def test_hidden_states_are_compared_through_their_projection() -> None:
    rows = zip(OWN.tolist(), TAUGHT.tolist(), strict=True)
    expected = [reference.hidden(*row, MAP.tolist()) for row in rows]
    close(hidden_losses(OWN, TAUGHT, MAP), expected)
    assert smooth(lambda own, projection: hidden_losses(own, TAUGHT, projection), OWN, MAP)


def test_a_state_without_anything_is_not_learned() -> None:
    taught_NE = TAUGHT.clone()
    taught_NE[1] = 0
    own_ND = OWN.clone().requires_grad_()
    losses_N = hidden_losses(own_ND, taught_NE, MAP)
    (gradient_ND,) = torch.autograd.grad(losses_N.sum(), own_ND)
    assert (losses_N == 0).tolist() == [False, True, False, False]
    assert (gradient_ND == 0).all(-1).tolist() == [False, True, False, False]


def test_boundaries_ask_for_a_margin() -> None:
    rows = zip((2 * OWN).tolist(), TAUGHT.tolist(), strict=True)
    expected = [reference.boundary(*row, MAP.tolist()) for row in rows]
    close(boundary_losses(2 * OWN, TAUGHT, MAP), expected)
    assert smooth(lambda own, map_GF: boundary_losses(own, TAUGHT, map_GF), OWN, MAP)
    far_NG = boundary_losses(1.01 * TAUGHT.sign(), TAUGHT, torch.eye(5).double())
    assert far_NG.max() == 0


def test_weights_are_compared_through_both_maps() -> None:
    lists = (one.tolist() for one in (WEIGHT, TAUGHT_WEIGHT, LEFT, RIGHT))
    close(weight_loss(WEIGHT, TAUGHT_WEIGHT, LEFT, RIGHT)[None], [reference.weight(*lists)])
    assert smooth(
        lambda own, left, right: weight_loss(own, TAUGHT_WEIGHT, left, right), WEIGHT, LEFT, RIGHT
    )


def test_gradients_are_compared_in_nats() -> None:
    rows = zip(OWN.tolist(), TAUGHT.tolist(), STATE.tolist(), strict=True)
    expected = [reference.gradient(*row, MAP.tolist()) for row in rows]
    close(gradient_losses(OWN, TAUGHT, STATE, MAP), expected)
    assert smooth(lambda own, one: gradient_losses(own, TAUGHT, STATE, one), OWN, MAP)


def attention(num_heads: int, num_kv_heads: int, head_dim: int, **changes: object) -> Attention:
    return Attention(
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        rotary=None,
        **changes,  # type: ignore[arg-type]
    )


def heads(kind: Attention, num_tokens: int) -> Heads:
    return Heads(
        attention=kind,
        q_BHTC=drawn(2, kind.num_heads, num_tokens, kind.head_dim),
        k_BKTC=drawn(2, kind.num_kv_heads, num_tokens, kind.head_dim),
    )


def plain_scores(found: Heads, row: int, query: int, key: int) -> list[float]:
    kind = found.attention
    return [
        reference.score(
            found.q_BHTC[row, head, query].tolist(),
            found.k_BKTC[row, head // (kind.num_heads // kind.num_kv_heads), key].tolist(),
            kind.scale or kind.head_dim**-0.5,
            kind.soft_cap,
        )
        for head in range(kind.num_heads)
    ]


CASES = [
    (attention(2, 1, 3), attention(4, 2, 5)),
    (attention(2, 2, 3, soft_cap=1.5), attention(3, 1, 2, scale=0.7)),
    (attention(3, 3, 2, window=3), attention(3, 3, 2, window=2)),
    (attention(1, 1, 4), attention(6, 2, 4)),
]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("own_kind", "taught_kind"), CASES)
def test_scores_are_compared_where_both_models_see(
    own_kind: Attention, taught_kind: Attention, packed: bool
) -> None:
    num_tokens = 5
    own, taught = heads(own_kind, num_tokens), heads(taught_kind, num_tokens)
    tokens_BT = torch.zeros(2, num_tokens, dtype=torch.int64)
    is_target_BT = torch.tensor([[1, 1, 0, 1, 1], [0, 0, 1, 1, 0]]).bool()
    texts_BT = torch.tensor([[0, 0, 0, 1, 1], [0, 1, 1, 1, 1]]) if packed else None
    batch = Batch(
        inputs_BT=tokens_BT, targets_BT=tokens_BT, is_target_BT=is_target_BT, texts_BT=texts_BT
    )
    window = min(own_kind.window or 99, taught_kind.window or 99)
    expected = []
    for row, query in is_target_BT.nonzero().tolist():
        keys = [
            key
            for key in range(query + 1)
            if query - key < window
            and (texts_BT is None or texts_BT[row, key] == texts_BT[row, query])
        ]
        total = 0.0
        for key in keys:
            theirs = plain_scores(taught, row, query, key)
            for head, mine in enumerate(plain_scores(own, row, query, key)):
                total += (mine - reference.head_mean(theirs, head, own_kind.num_heads)) ** 2
        expected.append(total / len(keys) / own_kind.num_heads)
    close(attention_losses(own, taught, batch), expected)

    def losses(q_BHTC: Tensor, k_BKTC: Tensor) -> Tensor:
        changed = Heads(attention=own_kind, q_BHTC=q_BHTC, k_BKTC=k_BKTC)
        return attention_losses(changed, taught, batch)

    assert smooth(losses, own.q_BHTC, own.k_BKTC)
    assert math.isfinite(sum(expected))
