"""An index of posting lists finds what COIL's formula says."""

import resource
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drivers.small_indexes import coil, coil_texts
from paredown.errors import ConfigError, OutputError
from paredown.kernels.vector_search import VECTOR_DTYPES, VectorDType
from paredown.retrieve import CoilIndex, CoilText, IndexConfig, coil_all
from paredown.retrieve import posting_runs as posting_runs_module
from references import retrieval as reference

few = settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def kept(text: CoilText, dtype: VectorDType) -> tuple[object, ...]:
    """Ids, vectors and CLS as an index of that dtype keeps them."""
    vectors = [reference.quantized(one, dtype) for one in np.asarray(text.vectors)]
    cls = None if text.cls is None else reference.quantized(text.cls, dtype)
    return text.ids, vectors, cls


def formula(query: CoilText, document: CoilText, dtype: VectorDType) -> float:
    ids, vectors, cls = kept(query, dtype)
    other_ids, other_vectors, other_cls = kept(document, dtype)
    return reference.coil(ids, vectors, other_ids, other_vectors, cls, other_cls)


@pytest.mark.parametrize("dtype", VECTOR_DTYPES)
@given(seed=st.integers(0, 2**32 - 1), with_cls=st.booleans())
@few
def test_scores_are_those_of_the_formula(
    tmp_path_factory: pytest.TempPathFactory, dtype: VectorDType, seed: int, *, with_cls: bool
) -> None:
    rng = np.random.default_rng(seed)
    dims, cls_dims = int(rng.integers(1, 40)), int(rng.integers(1, 50)) if with_cls else 0
    documents = coil_texts(rng, 30, dims, cls_dims=cls_dims)
    documents.append(CoilText(ids=[3], vectors=np.ones((1, dims)), cls=documents[0].cls))
    queries = coil_texts(rng, 4, dims, cls_dims=cls_dims, vocabulary=15)
    index = coil(tmp_path_factory.mktemp("i") / "i", documents, dtype=dtype)
    hits = index.search(queries, 100)
    for query, numbers, scores in zip(queries, hits.numbers, hits.scores, strict=True):
        assert sorted(numbers) == list(range(31))
        expected = [formula(query, documents[number], dtype) for number in numbers]
        np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-4)
        order = list(zip(-scores, numbers, strict=True))
        assert order == sorted(order)


def test_the_cosine_is_that_of_vectors_of_length_1(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    texts = coil_texts(rng, 40, 6, cls_dims=5)

    def scaled(text: CoilText) -> CoilText:
        vectors, cls = np.asarray(text.vectors), np.asarray(text.cls)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return CoilText(ids=text.ids, vectors=vectors / lengths, cls=cls / np.linalg.norm(cls))

    hits = coil(tmp_path / "i", texts, dtype="fp32", metric="cosine").search(texts[:3], 40)
    unit = [scaled(one) for one in texts]
    expected = np.take_along_axis(coil_all(unit[:3], unit), hits.numbers, axis=1)
    np.testing.assert_allclose(hits.scores, expected, atol=1e-5)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@given(sizes=st.lists(st.integers(1, 60), min_size=1, max_size=6), run=st.integers(1, 5000))
@few
def test_neither_batches_nor_runs_matter(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], run: int
) -> None:
    folder = tmp_path_factory.mktemp("runs")
    texts = coil_texts(np.random.default_rng(3), sum(sizes), 10, cls_dims=4)
    texts[0] = CoilText(ids=[1], vectors=np.ones((1, 10)), cls=np.ones(4))
    coil(folder / "whole", texts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(posting_runs_module, "_RUN_BYTES", run)
        patch.setattr(posting_runs_module, "_MERGED_AT_ONCE", run // 50 + 1)
        with CoilIndex.build(folder / "parts") as builder:
            for part in np.split(np.arange(len(texts)), np.cumsum(sizes)[:-1]):
                builder.add([texts[i] for i in part])
                assert not (folder / "parts").exists()
    assert files(folder / "parts") == files(folder / "whole")


def test_a_query_has_the_same_bits_alone_and_on_any_number_of_threads(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    coil(tmp_path / "i", coil_texts(rng, 3000, 16, cls_dims=8))
    queries = coil_texts(rng, 150, 16, cls_dims=8)
    found = CoilIndex.open(tmp_path / "i", num_threads=2).search(queries, 20)
    one = CoilIndex.open(tmp_path / "i", num_threads=1)
    for number in (0, 7, 149):
        alone = one.search([queries[number]], 20)
        assert (alone.scores[0] == found.scores[number]).all()
        assert (alone.numbers[0] == found.numbers[number]).all()


def test_a_long_list_is_summed_over_all_its_rows(tmp_path: Path) -> None:
    """One token in all documents, in one of them five thousand times."""
    rng = np.random.default_rng(5)
    lengths = [1] * 2000 + [5000] + [2] * 2000
    texts = [CoilText(ids=[9] * one, vectors=rng.normal(size=(one, 3))) for one in lengths]
    query = CoilText(ids=[9, 9, 8], vectors=rng.normal(size=(3, 3)))
    hits = coil(tmp_path / "i", texts, dtype="fp32").search([query], len(texts))
    expected = coil_all([query], texts)[0][hits.numbers[0]]
    np.testing.assert_allclose(hits.scores[0], expected, rtol=1e-5, atol=1e-5)


def test_documents_without_a_token_of_the_query_have_no_score(tmp_path: Path) -> None:
    """They come before those whose only product is negative, the lower numbers first."""
    negative = CoilText(ids=[5], vectors=[[-1.0, 0.0]])
    empty = CoilText(ids=[], vectors=np.empty((0, 2)))
    other, best = CoilText(ids=[6], vectors=[[9.0, 9.0]]), CoilText(ids=[5], vectors=[[3.0, 0.0]])
    index = coil(tmp_path / "i", [negative, empty, other, best], dtype="fp32")
    hits = index.search([CoilText(ids=[5, 7], vectors=[[1.0, 0.0], [1.0, 1.0]]), empty], 4)
    assert hits.numbers.tolist() == [[3, 1, 2, 0], [0, 1, 2, 3]]
    assert hits.scores.tolist() == [[3.0, 0.0, 0.0, -1.0], [0.0] * 4]
    assert len(index) == 4


def test_ids_texts_and_the_model_come_back(tmp_path: Path) -> None:
    texts = coil_texts(np.random.default_rng(6), 3, 4)
    with CoilIndex.build(tmp_path / "i", IndexConfig(model="abc", metric="dot")) as builder:
        builder.add([CoilText(ids=[2**32 - 1], vectors=np.ones((1, 4)))], ids=["a"], texts=["x"])
        builder.add([])
        builder.add(texts, ids=["b", "c", "d"], texts=["", "y", "z"])
    index = CoilIndex.open(tmp_path / "i", model="abc")
    hits = index.search([CoilText(ids=[2**32 - 1], vectors=np.ones((1, 4)))], 1)
    assert (index.ids(hits.numbers), index.texts(hits.numbers)) == (["a"], ["x"])
    assert index.header.metric == "dot"


def test_a_full_disk_is_told_while_runs_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        def tell(self) -> int:
            return 0

        def write(self, data: memoryview) -> int:
            raise OSError(28, "No space left on device")

        def __enter__(self) -> "Full":
            return self

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(posting_runs_module, "_RUN_BYTES", 100)
    monkeypatch.setattr(posting_runs_module.tempfile, "TemporaryFile", lambda dir: Full())
    with pytest.raises(OutputError, match=r"No space left on device.*nothing was left behind"):
        coil(tmp_path / "i", coil_texts(np.random.default_rng(7), 9, 4))
    assert not list(tmp_path.iterdir())


TEXT = CoilText(ids=[1, 2], vectors=np.ones((2, 3)))
FULL = CoilText(ids=[1], vectors=np.ones((1, 3)), cls=np.ones(4))
LONGER = CoilText(ids=[1], vectors=np.ones((1, 4)))
OTHER_CLS = CoilText(ids=[1], vectors=np.ones((1, 3)), cls=np.ones(5))
EMPTY = CoilText(ids=[], vectors=np.ones((0, 3)))


@pytest.mark.parametrize(
    "batches",
    [
        [[TEXT, LONGER]],
        [[TEXT], [LONGER]],
        [[TEXT, FULL]],
        [[TEXT], [FULL]],
        [[FULL], [TEXT]],
        [[FULL, OTHER_CLS]],
        [[FULL], [OTHER_CLS]],
        [[EMPTY]],
        [[]],
        [],
        [[np.ones((2, 3))]],
        [np.ones((2, 3))],
    ],
)
def test_texts_that_do_not_fit_are_refused(tmp_path: Path, batches: list[list[CoilText]]) -> None:
    def build() -> None:
        with CoilIndex.build(tmp_path / "i") as builder:
            for one in batches:
                builder.add(one)

    with pytest.raises(ConfigError, match=r"\(saw: .*\)\. [A-Z]"):
        build()
    assert not list(tmp_path.iterdir())


def test_a_batch_that_is_refused_leaves_no_trace(tmp_path: Path) -> None:
    with CoilIndex.build(tmp_path / "i") as builder:
        builder.add([FULL])
        for bad in ([FULL, TEXT], [OTHER_CLS], [LONGER]):
            with pytest.raises(ConfigError):
                builder.add(bad)
        builder.add([FULL, FULL])
    coil(tmp_path / "plain", [FULL] * 3)
    assert files(tmp_path / "i") == files(tmp_path / "plain")


def test_queries_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    index, full = coil(tmp_path / "i", [TEXT]), coil(tmp_path / "full", [FULL])
    for ask in (
        lambda: index.search([]),
        lambda: index.search([TEXT], 0),
        lambda: index.search([LONGER]),
        lambda: index.search([FULL]),
        lambda: index.search([TEXT, FULL]),
        lambda: index.search([np.ones((2, 3))]),
        lambda: full.search([TEXT]),
        lambda: full.search([OTHER_CLS]),
        lambda: CoilIndex.open(tmp_path / "i", num_threads=0),
    ):
        with pytest.raises(ConfigError, match=r"\(saw: .*\)\. [A-Z]"):
            ask()
    assert index.search([TEXT], 10**9).numbers.shape == (1, 1)


@pytest.mark.parametrize(
    "text",
    [
        {"ids": [-1], "vectors": [[1.0]]},
        {"ids": [2**32], "vectors": [[1.0]]},
        {"ids": [1], "vectors": [[1.0]], "cls": [[1.0], [2.0]]},
        {"ids": [1], "vectors": [[1.0]], "cls": [np.nan]},
        {"ids": [], "vectors": [[1.0]]},
        {"ids": [1], "vectors": np.empty((0, 2))},
    ],
)
def test_what_is_no_text_is_refused(text: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"\(saw: .*\)\. [A-Z]"):
        CoilText(**text)


def test_documents_that_change_under_an_open_index_are_left_out(tmp_path: Path) -> None:
    """The files are mapped, and what others write into them is never trusted with memory."""
    one = CoilText(ids=[1], vectors=np.ones((1, 4)))
    index = coil(tmp_path / "i", [one] * 64)
    changed = np.arange(64, dtype=np.uint32)
    changed[[5, 63]] = 0xFFFFFFF0
    with (tmp_path / "i" / "documents.bin").open("r+b") as file:
        file.write(changed.tobytes())
    hits = index.search([one], 64)
    np.testing.assert_array_equal(np.sort(hits.scores[0]), [0, 0] + [4] * 62)
    assert set(hits.numbers[0, -2:]) == {5, 63}


def test_many_runs_take_one_descriptor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posting_runs_module, "_RUN_BYTES", 1)
    texts = [CoilText(ids=[i % 7], vectors=np.full((1, 4), i)) for i in range(50)]
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    num_open = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (num_open + 20, limits[1]))
    try:
        with CoilIndex.build(tmp_path / "i") as builder:
            for text in texts:
                builder.add([text])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert len(CoilIndex.open(tmp_path / "i")) == 50


def test_queries_of_many_tokens_have_the_bits_that_they_have_alone(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    documents = coil_texts(rng, 40, 4, vocabulary=1000)
    queries = [
        CoilText(ids=rng.integers(0, 1000, 1500), vectors=rng.normal(size=(1500, 4)))
        for _ in range(3)
    ]
    index = coil(tmp_path / "i", documents)
    together = index.search(queries, 5)
    for number, query in enumerate(queries):
        alone = index.search([query], 5)
        np.testing.assert_array_equal(alone.scores[0], together.scores[number])
        np.testing.assert_array_equal(alone.numbers[0], together.numbers[number])
