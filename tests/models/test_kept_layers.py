"""The record of the layers that were kept: read, checked, composed, and matched with the
original's."""

import pytest

from paredown.errors import CheckpointError
from paredown.models.kept_layers import composed, layer_partners, read_kept_layers
from paredown.models.paredown_section import read_section, with_key


def test_the_record_is_read() -> None:
    assert read_kept_layers({}, 3) is None
    assert read_kept_layers({"paredown": {"kept_layers": [0, 2, 5]}}, 3) == (0, 2, 5)
    assert read_kept_layers({"paredown": {"activations": {}}}, 3) is None


@pytest.mark.parametrize(
    "record", ["0", [0, 1], [0, 2, 1], [0, 1, 1], [-1, 0, 1], [0, 1, True], [0, 1, 2.5], {}, 3]
)
def test_another_record_is_refused(record: object) -> None:
    with pytest.raises(CheckpointError, match="kept_layers"):
        read_kept_layers({"paredown": {"kept_layers": record}}, 3)


@pytest.mark.parametrize("section", [[], "x", {}, {"kept": []}, {"kept_layers": [0], "more": 1}])
def test_another_section_is_refused(section: object) -> None:
    with pytest.raises(CheckpointError, match="something else"):
        read_section({"paredown": section})


def test_keys_come_and_go() -> None:
    config = with_key({"a": 1}, "kept_layers", [0])
    assert config == {"a": 1, "paredown": {"kept_layers": [0]}}
    both = with_key(config, "pruned", {"q": 0.5})
    assert both["paredown"] == {"kept_layers": [0], "pruned": {"q": 0.5}}
    assert with_key(with_key(both, "pruned", None), "kept_layers", None) == {"a": 1}
    assert config["paredown"] == {"kept_layers": [0]}


def test_two_cuts_compose() -> None:
    assert composed(None, (0, 2, 3)) == (0, 2, 3)
    assert composed((0, 2, 3, 7), (0, 2, 3)) == (0, 3, 7)


@pytest.mark.parametrize(
    ("original", "num_original", "own", "num_own", "partners"),
    [
        (None, 3, None, 3, [0, 1, 2]),
        (None, 4, (0, 2, 3), 3, [0, 2, 3]),
        # Both were cut; a quantized folder of a cut one; a second cut of it.
        ((0, 2, 3), 3, (0, 2, 3), 3, [0, 1, 2]),
        ((0, 2, 3), 3, (0, 3), 2, [0, 2]),
        # A GGUF file of a cut folder has no record.
        ((0, 2, 3), 3, None, 3, [0, 1, 2]),
    ],
)
def test_partners(
    original: tuple[int, ...] | None,
    num_original: int,
    own: tuple[int, ...] | None,
    num_own: int,
    partners: list[int],
) -> None:
    assert layer_partners(original, num_original, own, num_own) == partners


@pytest.mark.parametrize(
    ("original", "num_original", "own", "num_own"),
    [(None, 4, None, 3), (None, 2, (0, 2), 2), ((0, 2), 2, (0, 1), 2), ((0, 2), 2, None, 3)],
)
def test_layers_without_partners_are_refused(
    original: tuple[int, ...] | None, num_original: int, own: tuple[int, ...] | None, num_own: int
) -> None:
    with pytest.raises(CheckpointError, match="cannot be compared"):
        layer_partners(original, num_original, own, num_own)
