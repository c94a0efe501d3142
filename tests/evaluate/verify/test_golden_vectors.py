"""Golden vectors tell a changed number, and survive their file."""

import json

import numpy as np
import pytest

from paredown.evaluate.verify.golden_vectors import GoldenVectors, make_golden_vectors


def vectors(size: int = 40) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((3, size)).astype(np.float32)


@pytest.mark.parametrize("size", [1, 2, 16, 17, 384])
def test_the_same_vectors_do_not_differ(size: int) -> None:
    golden = make_golden_vectors(vectors(size), {"isa": "avx2"})
    read = GoldenVectors.from_json(json.loads(json.dumps(golden.as_json())))
    assert read == golden
    assert read.difference(vectors(size)) < 1e-5


def test_the_difference_is_relative_to_their_size() -> None:
    golden = make_golden_vectors(vectors(), {})
    assert golden.difference(vectors() * np.float32(1.04)) == pytest.approx(0.04, rel=1e-3)
    assert golden.difference(vectors() * np.float32(np.nan)) == np.inf
    assert golden.difference(vectors()[:2]) == np.inf


def test_a_single_bit_changes_the_hash() -> None:
    changed = vectors()
    changed[1, 3] = np.nextafter(changed[1, 3], np.float32(10))
    assert make_golden_vectors(changed, {}).sha256 != make_golden_vectors(vectors(), {}).sha256


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"sha256": "x", "arithmetic": {}, "sample_NK": []},
        {"sha256": "x", "arithmetic": {}, "sample_NK": [1.0]},
        {"sha256": 1, "arithmetic": {}, "sample_NK": [[1.0]]},
        {"sha256": "x", "arithmetic": [], "sample_NK": [[1.0]]},
        {"sha256": "x", "arithmetic": {}, "sample_NK": [["a"]]},
    ],
)
def test_damaged_fields_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        GoldenVectors.from_json(fields)
