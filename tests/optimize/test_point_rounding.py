"""Points of a model as parts: which there are, in which layers, and their static ranges."""

import pytest
import torch

from fakes.task_texts import random_texts
from fakes.tiny_encoders import variant
from paredown.compress.activations import parse_grid, round_activations
from paredown.compress.calibrate.activation_range import scale_of_range
from paredown.errors import ConfigError
from paredown.evaluate.quality.simulated_texts import watch_points
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.points import LAYER_POINTS
from paredown.optimize.point_rounding import (
    POINT_NAMES,
    PointRounding,
    all_places,
    parse_layers,
    points,
    static_rounding,
)

GRID = parse_grid("int8-tensor-asym")


@pytest.fixture(scope="module")
def decoder(tmp_path_factory) -> Decoder:
    folder = tmp_path_factory.mktemp("encoder")
    variant("bert", "labels", num_labels=3)(folder)
    return Decoder.from_checkpoint(Checkpoint.open(folder))


def test_an_encoder_has_no_logits_and_every_point_has_a_name(decoder: Decoder) -> None:
    assert points(decoder.spec) == ("embedding", *LAYER_POINTS, "output_input")
    assert {*points(decoder.spec), "logits"} == set(POINT_NAMES)
    assert len(all_places(decoder.spec)) == 3 * len(LAYER_POINTS) + 2


def test_a_part_alone_and_everything_but_it_make_everything(decoder: Decoder) -> None:
    everything, *pairs = PointRounding(grid=GRID).variants(decoder.spec)
    assert set(everything.taps) == set(all_places(decoder.spec))
    for alone, all_but in zip(pairs[::2], pairs[1::2], strict=True):
        assert set(alone.taps) | set(all_but.taps) == set(everything.taps)
        assert not set(alone.taps) & set(all_but.taps)
        assert alone.taps


def test_parts_of_chosen_layers_are_the_points_there(decoder: Decoder) -> None:
    rounding = PointRounding(grid=GRID, layers=(1, 2))
    everything, *pairs = rounding.variants(decoder.spec)
    assert set(everything.taps) == set(all_places(decoder.spec))
    assert list(rounding.parts(decoder.spec)) == list(LAYER_POINTS)
    assert set(pairs[0].taps) == {"layers.1.attention_input", "layers.2.attention_input"}
    assert set(pairs[1].taps) == set(everything.taps) - set(pairs[0].taps)
    assert "1, 2" in rounding.name


def test_static_ranges_are_those_of_all_values(decoder: Decoder) -> None:
    texts = random_texts(12)
    batches = [
        lambda taps, part=part: watch_points(decoder, texts[part : part + 4], taps)
        for part in (0, 4, 8)
    ]
    rounding = static_rounding(decoder.spec, GRID, "minmax", batches)
    assert rounding.static is not None
    for place in ("embedding", "layers.1.probabilities", "layers.2.mlp_sum"):
        seen: list[torch.Tensor] = []
        watch_points(decoder, texts, {place: lambda x, seen=seen: (seen.append(x), x)[1]})
        values = torch.cat([one.flatten() for one in seen])
        lowest, highest = min(0.0, float(values.min())), max(0.0, float(values.max()))
        expected = scale_of_range(lowest, highest, GRID)
        assert rounding.static[place].scale == pytest.approx(expected.scale, rel=1e-5)
        (tap,) = rounding.taps([place]).values()
        wanted = round_activations(seen[0], GRID, rounding.static[place]).values
        assert torch.equal(tap(seen[0]), wanted)
    assert rounding.name == "int8-tensor-asym, static ranges by minmax"


@pytest.mark.parametrize("name", ["int8-token", "int8-g32", "bf16"])
def test_a_grid_without_one_scale_cannot_be_static(decoder: Decoder, name: str) -> None:
    with pytest.raises(ConfigError, match="whole tensor"):
        static_rounding(decoder.spec, parse_grid(name), "minmax", [])


def test_layers_are_numbers_that_exist() -> None:
    assert parse_layers("5, 4,5", 6) == (4, 5)
    for wrong in ("6", "-1", "a", "", "1,,2"):
        with pytest.raises(ConfigError, match="no such layers"):
            parse_layers(wrong, 6)
