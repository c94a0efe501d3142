"""Steps of single parameters: held weights stay, and some move by a multiple of the rate."""

import torch

from paredown.distill.adamw import AdamW, AdamWConfig

RATE = 0.01


def moved(rate_factors: dict[str, float], **held: torch.Tensor) -> dict[str, torch.Tensor]:
    """Returns how far two steps of equal gradients move two parameters that begin alike."""
    starts = {name: torch.ones(2, 2) for name in ("one", "other")}
    parameters = {name: start.clone().requires_grad_() for name, start in starts.items()}
    optimizer = AdamW(parameters, AdamWConfig(), held, rate_factors)
    for _ in range(2):
        optimizer.step([torch.full((2, 2), 0.1) for _ in parameters], RATE)
    return {name: one.detach() - starts[name] for name, one in parameters.items()}


def test_a_factor_multiplies_the_rate_of_its_parameter_alone() -> None:
    plain, changed = moved({}), moved({"other": 3.0})
    assert torch.equal(changed["one"], plain["one"])
    assert torch.allclose(changed["other"], 3 * plain["other"], rtol=1e-5)


def test_a_loaded_optimizer_keeps_its_own_factors() -> None:
    """The state has the rates of the last step, which must not outlive it."""
    weight = torch.ones(2, requires_grad=True)
    first = AdamW({"weight": weight}, AdamWConfig(), {}, {"weight": 3.0})
    first.step([torch.ones(2)], RATE)
    second = AdamW({"weight": weight}, AdamWConfig(), {}, {})
    second.load(first.state())
    before = weight.detach().clone()
    second.step([torch.zeros(2)], 0.0)
    assert torch.equal(weight, before)


def test_held_weights_do_not_move() -> None:
    is_held = torch.tensor([[True, False], [False, False]])
    found = moved({"one": 5.0}, one=is_held)["one"]
    assert ((found == 0) == is_held).all()
