"""The benchmark of retrieval: its task, its ranks and its ratios."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.retrieval import quality, speed
from benchmarks.retrieval.encoded import Encoded
from benchmarks.retrieval.paraphrases import Paraphrases, read_paraphrases
from benchmarks.retrieval.speed import SpeedCase
from paredown.retrieve import DenseIndex, TokenIndex

HEADER = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"


def test_pairs_are_places_among_different_sentences(tmp_path: Path) -> None:
    rows = ["1\t1\t2\tA cat.\tThe cat.", "0\t1\t3\tA cat.\tA dog.", '1\t4\t5\t"Oh.\tOh!']
    (tmp_path / "train.tsv").write_text(HEADER + "\n".join(rows))
    (tmp_path / "dev.tsv").write_text(HEADER + "1\t2\t1\tThe cat.\tA cat.\n")
    task = read_paraphrases(tmp_path)
    assert task.sentences == ("A cat.", "The cat.", "A dog.", '"Oh.', "Oh!")
    assert task.pairs == ((0, 1), (3, 4), (1, 0))
    assert task.queries == [0, 3, 1]
    assert task.some(2).pairs == ((0, 1), (3, 4))
    assert task.some(None).pairs == task.pairs


def test_each_score_finds_what_is_alike(tmp_path: Path) -> None:
    """Two texts of a pair share their words, and these their vectors; ranks are over the others."""
    rng = np.random.default_rng(0)
    ids = [1 + rng.permutation(200)[:6] for _ in range(30)]
    ids += [one[::-1] for one in ids]
    table = rng.normal(size=(300, 32)).astype(np.float32)
    tokens = [table[one] for one in ids]
    texts = np.stack([one.mean(axis=0) for one in tokens])
    encoded = Encoded(texts=texts, tokens=tokens, ids=ids, markers=frozenset({int(ids[0][0])}))
    sentences = tuple(f"{i} " + " ".join(f"word{one}" for one in row) for i, row in enumerate(ids))
    task = Paraphrases(sentences=sentences, pairs=tuple((i, i + 30) for i in range(30)))
    found = list(quality.measure(task, encoded, tmp_path))
    assert [(row.score, row.dtype) for row in found] == [
        ("BM25", ""),
        *((score, dtype) for dtype in ("fp32", "bf16", "int8") for score in quality.SCORES),
    ]
    for row in found:
        assert row.recall_at_1 == row.recall_at_10 == row.reciprocal_rank == 1
    shuffled = Paraphrases(sentences=sentences, pairs=tuple((i, (i + 7) % 30) for i in range(30)))
    assert all(row.recall_at_1 < 0.5 for row in quality.measure(shuffled, encoded, tmp_path))


@pytest.mark.parametrize("query_tokens", [0, 5])
def test_a_search_stands_beside_a_reading_of_as_many_bytes(
    tmp_path: Path, query_tokens: int
) -> None:
    case = SpeedCase(name="small", dtype="int8", num_dims=64, query_tokens=query_tokens)
    speed.build(case, tmp_path / "i", 3000, 100)
    found = speed.measure(case, tmp_path / "i", 1, 2)
    index = (TokenIndex if query_tokens else DenseIndex).open(tmp_path / "i")
    assert found.num_vectors == index.header.num_vectors
    num_rows = -(-found.num_vectors // 64) * 64
    assert found.num_bytes == num_rows * (64 + 4)
    assert 0 < found.ratio_least <= found.ratio <= found.ratio_most
    assert min(found.search_s, found.read_s, found.products_s) > 0
