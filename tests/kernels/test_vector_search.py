"""Search finds what a loop over all vectors finds, in the same bits however it is shared out."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paredown.kernels.isa import ENVIRONMENT_VARIABLE, supported_isas
from paredown.kernels.vector_search import (
    UNIT,
    VECTOR_DTYPES,
    VectorDType,
    VectorSearch,
    pack_vectors,
    unpack_vectors,
    vector_bytes,
)
from references import retrieval as reference

ISAS = supported_isas()
seeds = st.integers(0, 2**32 - 1)


def aligned(values: np.ndarray) -> np.ndarray:
    """The same bytes at a multiple of 64."""
    room = np.empty(len(values) + 64, np.uint8)
    start = -room.ctypes.data % 64
    room[start : start + len(values)] = values
    return room[start : start + len(values)]


def search_of(
    dtype: VectorDType,
    vectors_ND: np.ndarray,
    *,
    offsets: np.ndarray | None = None,
    num_threads: int = 1,
) -> VectorSearch:
    values, scales = pack_vectors(dtype, vectors_ND)
    return VectorSearch(
        dtype,
        vectors_ND.shape,
        aligned(values),
        scales if len(scales) else None,
        offsets=offsets,
        num_threads=num_threads,
    )


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype(np.float32)


def random_offsets(rng: np.random.Generator, num_documents: int, most: int) -> np.ndarray:
    offsets = np.zeros(num_documents + 1, np.int64)
    np.cumsum(rng.integers(1, most + 1, num_documents), out=offsets[1:])
    return offsets


def assert_same_bits(found: tuple, expected: tuple) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("dtype", VECTOR_DTYPES)
@settings(deadline=None)
@given(seed=seeds)
def test_packed_vectors_are_those_that_were_rounded(dtype: VectorDType, seed: int) -> None:
    rng = np.random.default_rng(seed)
    number, dims = int(rng.integers(1, 150)), int(rng.integers(1, 100))
    vectors = normal(rng, number, dims) * 10.0 ** rng.integers(-12, 12)
    vectors[rng.integers(number)] = 0
    values, scales = pack_vectors(dtype, vectors)
    assert len(values) == vector_bytes(dtype, number, dims)
    unpacked = unpack_vectors(dtype, values, scales, number, dims)
    expected = [reference.quantized(one, dtype) for one in vectors]
    np.testing.assert_allclose(unpacked, expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", VECTOR_DTYPES)
def test_the_panels_of_a_file_are_laid_out_as_its_version_says(dtype: VectorDType) -> None:
    """Another layout needs another VERSION (retrieve/index_header.py)."""
    number, dims = 70, 37
    vectors = np.random.default_rng(3).integers(-127, 128, (number, dims)).astype(np.float32)
    vectors[:, 0] = 127  # scales of 1
    values, _ = pack_vectors(dtype, vectors)
    padded = np.zeros((128, 64), np.float32)
    padded[:number, :dims] = vectors
    panels = padded.reshape(8, 16, 64)
    if dtype == "fp32":
        expected = panels.transpose(0, 2, 1).astype("<f4").tobytes()
    elif dtype == "bf16":
        pairs = (panels.view(np.uint32) >> 16).astype("<u2").reshape(8, 16, 32, 2)
        expected = pairs.transpose(0, 2, 1, 3).tobytes()
    else:
        quads = (panels + 128).astype(np.uint8).reshape(8, 16, 16, 4)
        expected = quads.transpose(0, 2, 1, 3).tobytes()
    assert values.tobytes() == expected


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", VECTOR_DTYPES)
@settings(max_examples=15, deadline=None)
@given(seed=seeds)
def test_the_best_are_those_of_a_loop(dtype: VectorDType, isa: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    number, dims = int(rng.integers(1, 400)), int(rng.integers(1, 80))
    num_queries = int(rng.integers(1, 70))
    vectors, queries = normal(rng, number, dims), normal(rng, num_queries, dims)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ENVIRONMENT_VARIABLE, isa)
        scores, numbers = search_of(dtype, vectors).top(queries, number)
    kept = np.array([reference.quantized(one, dtype) for one in vectors], np.float64)
    asked = np.array([reference.quantized(one, dtype) for one in queries], np.float64)
    expected = asked @ kept.T
    found = np.empty_like(expected)
    np.put_along_axis(found, numbers, scores, axis=1)
    bound = 1e-5 * np.abs(asked) @ np.abs(kept).T + 1e-6
    assert (np.abs(found - expected) <= bound).all()
    for row, order in zip(found, numbers, strict=True):
        assert order.tolist() == reference.best(row, number)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", VECTOR_DTYPES)
@settings(max_examples=15, deadline=None)
@given(seed=seeds)
def test_maxsim_is_that_of_a_loop(dtype: VectorDType, isa: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    dims, num_documents = int(rng.integers(1, 70)), int(rng.integers(1, 40))
    offsets = random_offsets(rng, num_documents, int(rng.integers(1, 90)))
    query_offsets = random_offsets(rng, int(rng.integers(1, 8)), 40)
    vectors, tokens = normal(rng, offsets[-1], dims), normal(rng, query_offsets[-1], dims)
    if rng.random() < 0.3:  # all similarities are negative, and padding would win
        vectors, tokens = np.abs(vectors), -np.abs(tokens)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ENVIRONMENT_VARIABLE, isa)
        search = search_of(dtype, vectors, offsets=offsets)
        scores, numbers = search.top_max_sim(tokens, query_offsets, num_documents)
    kept = np.array([reference.quantized(one, dtype) for one in vectors], np.float64)
    asked = np.array([reference.quantized(one, dtype) for one in tokens], np.float64)
    for i, query in enumerate(reference.split(asked, query_offsets)):
        similarities = query @ kept.T
        expected = [similarities[:, a:b].max(axis=1).sum() for a, b in pairwise(offsets)]
        found = np.empty(num_documents)
        found[numbers[i]] = scores[i]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
        assert numbers[i].tolist() == reference.best(found, num_documents)


@pytest.mark.parametrize("dtype", VECTOR_DTYPES)
def test_results_have_the_same_bits_alone_and_on_any_number_of_threads(dtype: VectorDType) -> None:
    rng = np.random.default_rng(8)
    vectors, queries = normal(rng, 9000, 48), normal(rng, 130, 48)
    expected = search_of(dtype, vectors).top(queries, 7)
    for num_threads in (2, 3):
        assert_same_bits(
            search_of(dtype, vectors, num_threads=num_threads).top(queries, 7), expected
        )
    search = search_of(dtype, vectors, num_threads=2)
    for i in (0, 77, 129):
        alone = search.top(queries[i : i + 1], 7)
        assert_same_bits(alone, tuple(one[i : i + 1] for one in expected))
    for count in (2, 5, 17, 64, 65):
        some = search.top(queries[:count], 7)
        assert_same_bits(some, tuple(one[:count] for one in expected))


@pytest.mark.parametrize("dtype", VECTOR_DTYPES)
def test_maxsim_has_the_same_bits_alone_and_on_any_number_of_threads(dtype: VectorDType) -> None:
    rng = np.random.default_rng(9)
    offsets = random_offsets(rng, 700, 60)
    query_offsets = random_offsets(rng, 9, 50)
    query_offsets[-1] += 100  # one query of more tokens than are taken together
    vectors, tokens = normal(rng, offsets[-1], 40), normal(rng, query_offsets[-1], 40)
    expected = search_of(dtype, vectors, offsets=offsets).top_max_sim(tokens, query_offsets, 5)
    search = search_of(dtype, vectors, offsets=offsets, num_threads=3)
    assert_same_bits(search.top_max_sim(tokens, query_offsets, 5), expected)
    for i, query in enumerate(reference.split(tokens, query_offsets)):
        alone = search.top_max_sim(query, np.array([0, len(query)]), 5)
        assert_same_bits(alone, tuple(one[i : i + 1] for one in expected))


def test_a_document_of_many_tokens_is_one_document() -> None:
    """More than are scored at a time, between two that are short."""
    rng = np.random.default_rng(10)
    offsets = np.array([0, 3, 20_003, 20_010])
    vectors, query = normal(rng, offsets[-1], 8), normal(rng, 5, 8)
    search = search_of("fp32", vectors, offsets=offsets, num_threads=2)
    scores, numbers = search.top_max_sim(query, np.array([0, 5]), 3)
    expected = [
        (query @ one.T).max(axis=1).sum() for one in reference.split(vectors, offsets.tolist())
    ]
    assert numbers[0, 0] == 1
    np.testing.assert_allclose(scores[0], np.array(expected)[numbers[0]], rtol=1e-5)


@pytest.mark.parametrize("dtype", VECTOR_DTYPES)
def test_of_equal_scores_the_lower_number_comes_first(dtype: VectorDType) -> None:
    vectors = np.tile(np.eye(4, dtype=np.float32), (2500, 1))
    for num_threads in (1, 2):
        search = search_of(dtype, vectors, num_threads=num_threads)
        _, numbers = search.top(np.array([[0, 1, 0, 0]], np.float32), 6)
        assert numbers.tolist() == [[1, 5, 9, 13, 17, 21]]


def test_padding_is_never_a_hit() -> None:
    vectors = -np.ones((UNIT + 1, 8), np.float32)
    for dtype in VECTOR_DTYPES:
        scores, numbers = search_of(dtype, vectors).top(np.ones((1, 8), np.float32), 1000)
        assert numbers.shape == (1, UNIT + 1)
        assert sorted(numbers[0]) == list(range(UNIT + 1))
        assert (scores == -8).all()


def test_arrays_that_do_not_fit_are_refused() -> None:
    vectors = np.ones((5, 8), np.float32)
    values, scales = pack_vectors("int8", vectors)
    place = aligned(values)

    def search(**changes: object) -> VectorSearch:
        given = {"dtype": "int8", "shape": (5, 8), "values": place, "scales_N": scales}
        return VectorSearch(**given | {"num_threads": 1} | changes)

    for changes in (
        {"shape": (70, 8)},
        {"shape": (0, 8)},
        {"shape": (5, 0)},
        {"shape": (5, 2**17)},
        {"values": place[:-1]},
        {"values": aligned(np.append(values, values))[1 : len(values) + 1]},
        {"scales_N": None},
        {"dtype": "int4"},
        {"offsets": np.array([0, 5, 5])},
        {"offsets": np.array([1, 5])},
        {"offsets": np.array([0, 4])},
        {"offsets": np.array([0, 9, 5])},
        {"num_threads": 0},
    ):
        with pytest.raises(ValueError, match=r"\w"):
            search(**changes)
    with pytest.raises(ValueError, match="dimensions"):
        search().top(np.ones((1, 9), np.float32), 1)
    with pytest.raises(ValueError, match="no tokens"):
        search().top_max_sim(np.ones((1, 8), np.float32), np.array([0, 1]), 1)
    documents = search(offsets=np.array([0, 2, 5]))
    for offsets in ([0], [0, 2], [0, 1, 1], [0, 2, 1]):
        with pytest.raises(ValueError, match=r"queries|offsets"):
            documents.top_max_sim(np.ones((1, 8), np.float32), np.array(offsets), 1)
