"""A number chooses the token at which the sum of all probabilities so far first exceeds it."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paredown.distill.inverse_transform import drawn
from references.policy_gradient import drawn_token

LAST = float(np.nextafter(1.0, 0.0))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), num_draws=st.integers(1, 5))
def test_each_number_chooses_as_token_by_token(seed: int, num_draws: int) -> None:
    random = torch.Generator().manual_seed(seed)
    log_p_NV = (3 * torch.randn(4, 9, generator=random)).log_softmax(-1)
    draws_NS = torch.rand(4, num_draws, generator=random, dtype=torch.float64)
    shares_NV = log_p_NV.double().softmax(-1)
    expected = [
        [drawn_token(shares_V, draw) for draw in draws_S]
        for shares_V, draws_S in zip(shares_NV.tolist(), draws_NS.tolist(), strict=True)
    ]
    assert drawn(log_p_NV, draws_NS).tolist() == expected


def test_a_token_that_is_impossible_is_never_drawn() -> None:
    log_p_NV = torch.tensor([[0.0, 1.0, 0.0, 1e-9, 0.0]]).log().log_softmax(-1)
    draws_NS = torch.tensor([[0.0, 0.5, LAST]], dtype=torch.float64)
    assert set(drawn(log_p_NV, draws_NS).flatten().tolist()) <= {1, 3}


def test_no_number_lies_beyond_a_sum_that_rounding_left_below_one() -> None:
    log_p_NV = torch.tensor([[0.3, 0.6, 0.0]], dtype=torch.float64).log()
    draws_NS = torch.tensor([[0.0, 0.95, LAST]], dtype=torch.float64)
    assert drawn(log_p_NV, draws_NS).tolist() == [[0, 1, 1]]
