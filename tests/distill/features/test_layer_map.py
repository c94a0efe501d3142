"""Layers are mapped evenly, and every-k students to the layers that they kept."""

import pytest

from paredown.distill.features.layer_map import LayerMap, checked_inside
from paredown.errors import ConfigError, UnsupportedError


@pytest.mark.parametrize("num_teacher_layers", range(1, 13))
def test_all_layers_of_the_teacher_are_stood_for_once(num_teacher_layers: int) -> None:
    for num_student_layers in range(1, num_teacher_layers + 1):
        found = LayerMap(
            num_student_layers=num_student_layers, num_teacher_layers=num_teacher_layers
        )
        layers = [layer for index in range(num_student_layers) for layer in found.layers(index)]
        assert layers == list(range(num_teacher_layers))
        assert all(found.layers(index) for index in range(num_student_layers))


@pytest.mark.parametrize("num_layers", range(2, 40))
def test_a_student_of_every_second_layer_is_compared_with_these(num_layers: int) -> None:
    kept = list(range(0, num_layers, 2))
    found = LayerMap(num_student_layers=len(kept), num_teacher_layers=num_layers)
    assert [found.inner(index) for index in range(len(kept))] == kept


def test_the_last_is_that_of_tinybert() -> None:
    found = LayerMap(num_student_layers=4, num_teacher_layers=12, inside="last")
    assert found.states == (0, 3, 6, 9, 12)
    assert [found.inner(index) for index in range(4)] == [2, 5, 8, 11]


def test_a_deeper_student_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="deeper"):
        LayerMap(num_student_layers=3, num_teacher_layers=2)


def test_an_unknown_map_is_refused() -> None:
    assert checked_inside("last") == "last"
    with pytest.raises(ConfigError, match="middle"):
        checked_inside("middle")
