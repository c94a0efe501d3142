"""An index finds what the scores of its vectors say."""

import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drivers.small_indexes import build, dense, documents_of, normal, tokens
from paredown.errors import ConfigError, OutputError
from paredown.kernels.vector_search import VECTOR_DTYPES, VectorDType
from paredown.retrieve import DenseIndex, TokenIndex, cosine, dot, maxsim_all
from paredown.retrieve.index_config import IndexConfig
from paredown.retrieve.index_header import METRICS, Metric
from references import retrieval as reference

# Of a cosine of rounded vectors to the exact one.
TOLERANCE = {"fp32": 1e-5, "bf16": 0.01, "int8": 0.03}


@pytest.mark.parametrize("dtype", VECTOR_DTYPES)
@pytest.mark.parametrize("metric", METRICS)
def test_a_dense_index_finds_what_its_metric_says(
    tmp_path: Path, dtype: VectorDType, metric: Metric
) -> None:
    rng = np.random.default_rng(1)
    vectors, queries = normal(rng, 500, 32), normal(rng, 9, 32)
    index = dense(tmp_path / "i", vectors, dtype=dtype, metric=metric)
    hits = index.search(queries, 500)
    expected = {"cosine": cosine, "dot": dot}[metric](queries, vectors)
    found = np.take_along_axis(expected, hits.numbers, axis=1)
    scale = 1 if metric == "cosine" else 32
    np.testing.assert_allclose(hits.scores, found, atol=scale * TOLERANCE[dtype])
    assert (np.diff(hits.scores, axis=1) <= 0).all()
    if dtype == "fp32":
        assert hits.numbers[:, :10].tolist() == [reference.best(one, 10) for one in expected]


@pytest.mark.parametrize("dtype", VECTOR_DTYPES)
def test_a_token_index_finds_what_maxsim_says(tmp_path: Path, dtype: VectorDType) -> None:
    rng = np.random.default_rng(2)
    documents, queries = documents_of(rng, 80, 24), documents_of(rng, 5, 24)
    index = tokens(tmp_path / "i", documents, dtype=dtype, metric="dot")
    hits = index.search_maxsim(queries, 80)
    expected = np.take_along_axis(maxsim_all(queries, documents), hits.numbers, axis=1)
    np.testing.assert_allclose(hits.scores, expected, rtol=10 * TOLERANCE[dtype], atol=1e-3)
    assert index.offsets().tolist() == [0, *np.cumsum([len(one) for one in documents])]


def test_nothing_but_real_tokens_wins(tmp_path: Path) -> None:
    """Every similarity is negative; the short document stands beside a long one and alone."""
    query, short = np.ones((3, 4), np.float32), -np.ones((1, 4), np.float32)
    together = tokens(tmp_path / "two", [short, np.repeat(short, 7, axis=0)]).search_maxsim([query])
    alone = tokens(tmp_path / "one", [short]).search_maxsim([query])
    assert alone.scores[0, 0] < 0
    assert together.scores[0].tolist() == [alone.scores[0, 0]] * 2
    assert together.numbers.tolist() == [[0, 1]]


@given(sizes=st.lists(st.integers(1, 150), min_size=1, max_size=6))
@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_batches_do_not_matter(tmp_path_factory: pytest.TempPathFactory, sizes: list[int]) -> None:
    folder = tmp_path_factory.mktemp("batches")
    vectors = normal(np.random.default_rng(3), sum(sizes), 20)
    dense(folder / "whole", vectors)
    with DenseIndex.build(folder / "parts") as builder:
        for part in np.split(vectors, np.cumsum(sizes)[:-1]):
            builder.add(part)
    for name in ("header.json", "vectors.bin", "scales.bin"):
        assert (folder / "parts" / name).read_bytes() == (folder / "whole" / name).read_bytes()


def test_a_query_has_the_same_bits_alone_and_on_any_number_of_threads(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    dense(tmp_path / "i", normal(rng, 3000, 16))
    queries = normal(rng, 40, 16)
    found = DenseIndex.open(tmp_path / "i", num_threads=2).search(queries, 5)
    alone = DenseIndex.open(tmp_path / "i", num_threads=1).search(queries[7], 5)
    assert (alone.scores[0] == found.scores[7]).all()
    assert (alone.numbers[0] == found.numbers[7]).all()


def test_many_threads_search_one_index(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    index, queries = dense(tmp_path / "i", normal(rng, 4000, 16)), normal(rng, 8, 16)
    expected = index.search(queries, 3)
    found: dict[int, np.ndarray] = {}

    def ask(i: int) -> None:
        for _ in range(20):
            found[i] = index.search(queries[i], 3).numbers[0]

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((found[i] == expected.numbers[i]).all() for i in range(8))


def test_vectors_of_zeros_have_a_cosine_of_zero(tmp_path: Path) -> None:
    vectors = np.array([[0, 0], [1, 0], [-1, 0]], np.float32)
    for dtype in VECTOR_DTYPES:
        hits = dense(tmp_path / dtype, vectors, dtype=dtype).search([[2.0, 0.0], [0.0, 0.0]])
        np.testing.assert_allclose(hits.scores[0], [1, 0, -1], atol=1e-2)
        assert hits.numbers[0].tolist() == [1, 0, 2]
        assert hits.scores[1].tolist() == [0, 0, 0]
        assert hits.numbers[1].tolist() == [0, 1, 2]


def test_ids_and_texts_come_back(tmp_path: Path) -> None:
    names = ["first", "", "třetí", "\ud800half"]
    with DenseIndex.build(tmp_path / "i") as builder:
        builder.add(np.eye(4)[:3], ids=names[:3], texts=["a", "b", "c"])
        builder.add(np.eye(4)[3:], ids=names[3:], texts=["d"])
    index = DenseIndex.open(tmp_path / "i")
    hits = index.search([0, 0, 1, 0], 1)
    assert (index.ids(hits.numbers), index.texts(hits.numbers)) == (["třetí"], ["c"])
    assert index.ids(np.arange(4)) == ["first", "", "třetí", "?half"]
    with pytest.raises(ConfigError, match="no such document"):
        index.ids(np.array([4]))
    with pytest.raises(ConfigError, match="holds no texts"):
        dense(tmp_path / "plain", np.eye(4)).texts(np.array([0]))


@pytest.mark.parametrize("dtype", VECTOR_DTYPES)
def test_an_export_is_what_search_meets(tmp_path: Path, dtype: VectorDType) -> None:
    rng = np.random.default_rng(6)
    vectors, query = normal(rng, 9000, 12), normal(rng, 1, 12)
    index = dense(tmp_path / "i", vectors, dtype=dtype, metric="dot")
    index.export_npy(tmp_path / "vectors.npy")
    exported = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    assert exported.shape == (9000, 12)
    assert exported.dtype == np.float32
    hits = index.search(query, 9000)
    asked = reference.quantized(query[0], dtype)
    expected = (exported @ asked)[hits.numbers[0]]
    np.testing.assert_allclose(hits.scores[0], expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(OutputError, match="could not be written"):
        index.export_npy(tmp_path / "no folder" / "vectors.npy")


def nothing_in(folder: Path) -> bool:
    return not list(folder.iterdir())


BAD_DOCUMENTS = [
    ([[1.0, np.nan]], "cannot be compared"),
    ([[1e300, 0.0]], "cannot be compared"),
    ([["a", "b"]], "no vectors"),
    ([[1.0], [1.0, 2.0]], "no vectors"),
    (np.ones((2, 3)), "another number of dimensions"),
]


@pytest.mark.parametrize(("vectors", "told"), BAD_DOCUMENTS)
def test_vectors_that_do_not_fit_are_refused(tmp_path: Path, vectors: object, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        build(DenseIndex, tmp_path / "i", np.eye(2), vectors)
    assert nothing_in(tmp_path)


def test_strings_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="one of the ids for each"):
        build(DenseIndex, tmp_path / "i", np.eye(2), ids=[["a"]])
    two, none = ["a", "b"], []
    with pytest.raises(ConfigError, match="texts after ids"):
        build(DenseIndex, tmp_path / "i", np.eye(2), np.eye(2), ids=[two, none], texts=[none, two])
    assert nothing_in(tmp_path)


def test_an_index_of_nothing_is_refused(tmp_path: Path) -> None:
    for index in (DenseIndex, TokenIndex):
        with pytest.raises(ConfigError, match="needs documents"):
            build(index, tmp_path / "i", [])
    with pytest.raises(ConfigError, match="must have tokens"):
        build(TokenIndex, tmp_path / "i", [np.ones((2, 3)), np.ones((0, 3))])
    assert nothing_in(tmp_path)


def test_what_an_index_cannot_be_is_refused() -> None:
    for change in ({"dtype": "int4"}, {"metric": "l2"}):
        with pytest.raises(ConfigError, match="an index has no such"):
            IndexConfig(**change)


def test_queries_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    index, documents = dense(tmp_path / "d", np.eye(3)), tokens(tmp_path / "t", [np.eye(3)])
    for ask in (
        lambda: index.search([1.0, 2.0]),
        lambda: index.search([1.0, 2.0, np.inf]),
        lambda: index.search(np.ones((0, 3))),
        lambda: index.search([1.0, 2.0, 3.0], 0),
        lambda: documents.search_maxsim([]),
        lambda: documents.search_maxsim([np.ones((0, 3))]),
        lambda: documents.search_maxsim([np.ones((2, 4))]),
        lambda: documents.search_maxsim([np.ones((2, 3))], -1),
        lambda: DenseIndex.open(tmp_path / "d", num_threads=0),
    ):
        with pytest.raises(ConfigError, match=r"\(saw: .*\)\. [A-Z]"):
            ask()
    assert index.search([1.0, 0, 0], 10**9).numbers.shape == (1, 3)
