"""Widths under a budget: the solver against trying everything, losses against single runs."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.random_text import random_text
from fakes.tiny_models import VARIANTS
from paredown.compress.compress import compress
from paredown.compress.quantize.rtn import RTN
from paredown.compress.size import weight_bytes
from paredown.errors import ConfigError, UnsupportedError
from paredown.evaluate.quality.simulated import Variant, applied
from paredown.formats.table import FORMATS
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.optimize.mixed_precision import (
    WIDTHS,
    PartChoices,
    assign_average_bits,
    assign_bytes,
    formats_of_widths,
    make_choice,
    measure_choices,
    reverse_assignment,
    rounded_when_needed,
    solve,
)
from paredown.optimize.model_parts import PART_KINDS, find_parts

SPECS = formats_of_widths(32)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("tiny") / "model"
    VARIANTS["llama-gqa"](folder, torch.bfloat16, 0)
    return Checkpoint.open(folder)


@pytest.fixture(scope="module")
def found(checkpoint) -> list[PartChoices]:
    return measure_choices(checkpoint, random_text(), SPECS, RTN())


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_the_solver_finds_what_trying_everything_finds(data) -> None:
    num_parts = data.draw(st.integers(1, 5))
    shapes = [data.draw(st.integers(1, 4)) for _ in range(num_parts)]
    costs = [[data.draw(st.integers(0, 30)) for _ in range(size)] for size in shapes]
    # Eighths add up without rounding, so that equal sums are equal.
    losses = [[data.draw(st.integers(0, 40)) / 8 for _ in range(size)] for size in shapes]
    budget = sum(map(min, costs)) + data.draw(st.integers(0, 40))
    tried = [
        (sum(losses[at][c] for at, c in enumerate(all_of)),
         sum(costs[at][c] for at, c in enumerate(all_of)))
        for all_of in itertools.product(*map(range, shapes))
    ]  # fmt: skip
    best = min((loss, cost) for loss, cost in tried if cost <= budget)
    chosen = solve(costs, losses, budget)
    loss = sum(losses[at][c] for at, c in enumerate(chosen))
    assert (loss, sum(costs[at][c] for at, c in enumerate(chosen))) == best


def test_many_parts_are_solved_in_a_moment() -> None:
    rng = np.random.default_rng(0)
    sizes = rng.choice([25, 16, 86, 43], 128)
    costs = [[int(size) * bits for bits in WIDTHS] for size in sizes]
    losses = [[float(s) * 4.0**-bits for bits in WIDTHS] for s in rng.lognormal(size=128)]
    budget = 4 * int(sizes.sum())
    chosen = solve(costs, losses, budget)
    assert sum(own[c] for own, c in zip(costs, chosen, strict=True)) <= budget
    # No exchange of one width up for another down is left that would help.
    spare = budget - sum(own[c] for own, c in zip(costs, chosen, strict=True))
    for up, down in itertools.permutations(range(128), 2):
        if chosen[up] + 1 < len(WIDTHS) and chosen[down] > 0:
            more = costs[up][chosen[up] + 1] - costs[up][chosen[up]]
            less = costs[down][chosen[down]] - costs[down][chosen[down] - 1]
            won = losses[up][chosen[up]] - losses[up][chosen[up] + 1]
            lost = losses[down][chosen[down] - 1] - losses[down][chosen[down]]
            assert more - less > spare or won <= lost * (1 + 1e-9)


@pytest.mark.parametrize("name", ["llama-gqa", "gpt2", "opt"])
def test_every_module_is_in_one_part_of_each_kind(name, tmp_path) -> None:
    VARIANTS[name](tmp_path, torch.float32, 0)
    spec = Checkpoint.open(tmp_path).spec
    every = [(layer, role) for layer in range(spec.num_layers) for role in spec.linear_shapes(0)]
    for kind in PART_KINDS:
        parts = find_parts(spec, kind)
        assert sorted(pair for part in parts for pair in part.modules) == sorted(every)
        assert sum(part.num_weights(spec) for part in parts) == spec.num_linear_parameters()
        assert len({part.name for part in parts}) == len(parts)


def test_losses_are_those_of_each_part_alone(checkpoint, found) -> None:
    decoder = Decoder.from_checkpoint(checkpoint)
    text = random_text()
    assert [one.part.name for one in found[:4]] == [
        "layer 0 q k v", "layer 0 o", "layer 0 gate up", "layer 0 down"
    ]  # fmt: skip
    for at, spec_at in ((0, 0), (5, 2), (7, 5)):
        part, choice = found[at].part, found[at].choices[spec_at]
        weights = rounded_when_needed(decoder, part, RTN(), SPECS[spec_at], "bf16")
        kl = 0.0
        for window in text.windows:
            ids = torch.tensor([window.inputs])
            with torch.inference_mode():
                log_p = decoder(ids)[0].double().log_softmax(-1)
                with applied(decoder, Variant(weights=weights)):
                    log_q = decoder(ids)[0].double().log_softmax(-1)
            kl += float((log_p.exp() * (log_p - log_q)).sum())
        assert choice.spec == SPECS[spec_at]
        assert choice.loss == pytest.approx(kl / text.num_tokens, rel=1e-3)


def test_the_budget_is_kept_and_fused_modules_share_their_format(checkpoint, found) -> None:
    assignment = assign_average_bits(found, 4.0)
    assert assignment.average_bits <= 4.0
    by_module = assignment.by_module()
    for layer in range(checkpoint.spec.num_layers):
        assert len({by_module[layer, role] for role in ("q", "k", "v")}) == 1
        assert len({by_module[layer, role] for role in ("gate", "up")}) == 1
    uniform = [one.choices[WIDTHS.index(4)].loss for one in found]
    backwards = reverse_assignment(found, 4.0)
    assert backwards.average_bits <= 4.0
    assert assignment.predicted_loss <= min(sum(uniform), backwards.predicted_loss)
    assert assign_average_bits(found, 8).predicted_loss <= assignment.predicted_loss
    for choice, one in zip(backwards.chosen, found, strict=True):
        assert choice in one.choices


@pytest.mark.parametrize("name", ["int4-g32", "int3-g32-asym", "int8", "int6-g64"])
def test_bytes_are_those_that_are_stored(checkpoint, name, tmp_path) -> None:
    spec = FORMATS[name]
    columns = [columns for _, columns in checkpoint.spec.linear_shapes(0).values()]
    if any(one % (spec.group_size or 1) for one in columns):
        with pytest.raises(UnsupportedError, match="do not divide"):
            measure_choices(checkpoint, random_text(), [spec], RTN())
        return
    compress(checkpoint, tmp_path / "out", name)
    written = Checkpoint.open(tmp_path / "out")
    floats = sum(
        tensor.array.nbytes for key, tensor in checkpoint.tensors.items() if "_proj" not in key
    )
    shapes = sum(t.array.nbytes for key, t in written.tensors.items() if key.endswith("_shape"))
    parts = find_parts(checkpoint.spec, "fused")
    counted = sum(make_choice(checkpoint, part, spec, 0.0, "bf16").stored_bytes for part in parts)
    assert weight_bytes(written) - floats - shapes == counted


def test_the_recipe_writes_what_was_assigned(checkpoint, found, tmp_path) -> None:
    assignment = assign_average_bits(found, 4.0)
    compress(checkpoint, tmp_path / "out", assignment.recipe(checkpoint, RTN(), "searched"))
    written = Checkpoint.open(tmp_path / "out")
    specs = written.weight_specs()
    assert len({spec.name for spec in assignment.by_module().values()}) > 1
    for (layer, role), spec in assignment.by_module().items():
        assert specs[written.linear_name(role, layer)] == spec
    decoder, ours = Decoder.from_checkpoint(written), Decoder.from_checkpoint(checkpoint)
    for part, choice in zip(assignment.parts, assignment.chosen, strict=True):
        for key, make in rounded_when_needed(ours, part, RTN(), choice.spec, "bf16").items():
            # A checkpoint's reader rounds the values to the scales' dtype once more.
            assert torch.equal(make().bfloat16().float(), decoder.get_parameter(key))


def test_the_output_layer_gets_a_width_where_it_is_asked_for(checkpoint, tmp_path) -> None:
    found = measure_choices(checkpoint, random_text(), SPECS, RTN(), with_output=True)
    assert [one.part.name for one in found][-1] == "output layer"
    assert all(choice.loss > 0 for choice in found[-1].choices)
    assignment = assign_average_bits(found, 4.0)
    recipe = assignment.recipe(checkpoint, RTN(), "searched")
    assert recipe.output == assignment.chosen[-1].spec
    compress(checkpoint, tmp_path / "out", recipe)
    written = Checkpoint.open(tmp_path / "out")
    assert written.output().spec == assignment.chosen[-1].spec
    num_weights = math.prod(written.output().shape)
    assert [choice.code_bits / num_weights for choice in found[-1].choices] == list(WIDTHS)


def test_a_budget_of_bytes(found) -> None:
    uniform = [one.choices[WIDTHS.index(4)] for one in found]
    limit = sum(choice.stored_bytes for choice in uniform)
    assignment = assign_bytes(found, limit)
    assert assignment.stored_bytes <= limit
    assert assignment.predicted_loss <= sum(choice.loss for choice in uniform)


def test_a_budget_too_small_is_refused(found) -> None:
    with pytest.raises(ConfigError, match=r"at least 2\.00"):
        assign_average_bits(found, 1.9)
    with pytest.raises(ConfigError, match="small"):
        assign_bytes(found, 10)
    with pytest.raises(ConfigError, match="groups"):
        formats_of_widths(48)
    assert math.isclose(assign_average_bits(found, 2.0).average_bits, 2.0)
