"""Encoder and AsyncEncoder: the same answers, whoever else asks."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from drivers.encoder_server import toy_model
from fakes.scripted_encoder import EMBEDDING, SPARSE, ScriptedEncoder, classifier
from paredown import AsyncEncoder, BatchConfig, Encoder
from paredown.engine.build_encoder import BuiltEncoder
from paredown.engine.encode.run_batch import ModelFailedError
from paredown.engine.encode.similarity import SIMILARITIES
from paredown.engine.sampling.field_rules import ParameterError
from paredown.errors import RequestError, UnsupportedError
from paredown.spec.head import Head

TEXTS = ["a", "b c", "d e f g h", "i"]


def toy_encoder(head=EMBEDDING, config=None, **settings) -> Encoder:
    model = toy_model(head, **settings)
    executor = ScriptedEncoder(spec=model.spec)
    return Encoder.over(BuiltEncoder(executor=executor, model=model), config)


def test_answers_do_not_depend_on_how_texts_are_batched():
    whole = toy_encoder().embed(TEXTS).vectors
    for budget in (1, 5, 9):
        found = toy_encoder(config=BatchConfig(max_batch_tokens=budget)).embed(TEXTS)
        assert (found.vectors == whole).all()
    assert (toy_encoder().embed(TEXTS[2]).vectors == whole[2]).all()


def test_long_texts_are_encoded_first_and_answered_in_their_place():
    encoder = toy_encoder(config=BatchConfig(max_batch_tokens=8))
    encoder.embed(TEXTS)
    sizes = [[len(text) for text in batch] for batch in encoder.executor.batches]
    assert sizes == [[7], [4, 3], [3]]


def test_every_answer_is_the_same_for_many_askers_at_once():
    encoder = toy_encoder()
    expected = encoder.embed(TEXTS).vectors
    ranked = encoder.rerank("a", TEXTS).results
    scores = encoder.score("a", TEXTS).scores
    tokens = encoder.token_vectors(TEXTS)

    async def main():
        async with AsyncEncoder(encoder) as shared:
            with pytest.raises(RequestError, match="AsyncEncoder has this encoder"):
                encoder.embed("a")
            embedded = await asyncio.gather(*(shared.embed(TEXTS) for _ in range(20)))
            assert all((one.vectors == expected).all() for one in embedded)
            assert (await shared.rerank("a", TEXTS)).results == ranked
            assert ((await shared.score("a", TEXTS)).scores == scores).all()
            found = await shared.token_vectors(TEXTS)
            assert found.token_ids == tokens.token_ids
            long = ["a b c d " * 15] * 200
            assert (await shared.embed(long)).vectors.shape == (200, 32)
            with pytest.raises(RequestError, match="no texts"):
                await shared.embed([])
        with pytest.raises(RequestError, match="not open"):
            await shared.embed("a")

    asyncio.run(main())
    assert (encoder.embed(TEXTS).vectors == expected).all()


def test_classifiers_and_sparse_encoders_answer_asynchronously_too():
    labels, sparse = toy_encoder(classifier(2)), toy_encoder(SPARSE)
    expected = labels.classify(TEXTS), sparse.sparse_vectors(TEXTS)

    async def main():
        async with AsyncEncoder(labels) as first, AsyncEncoder(sparse) as second:
            return await first.classify(TEXTS), await second.sparse_vectors(TEXTS)

    found = asyncio.run(main())
    assert found[0].labels == expected[0].labels
    for one, other in zip(found[1].vectors, expected[1].vectors, strict=True):
        assert (np.asarray(one.ids) == other.ids).all()
        assert (np.asarray(one.weights) == other.weights).all()


def test_sparse_vectors_hold_the_positive_weights_of_the_vocabulary():
    encoder = toy_encoder(SPARSE)
    found = encoder.sparse_vectors("a b").vectors[0]
    row = encoder.executor.encode([replace(_text(), token_ids=[2, 7, 8, 3])])[0]
    dense = np.zeros(512, np.float32)
    dense[np.asarray(found.ids)] = found.weights
    assert (dense == row).all()
    other = encoder.sparse_vectors("c").vectors[0]
    both = dict(zip(np.asarray(other.ids).tolist(), other.weights, strict=True))
    expected = sum(
        weight * both.get(token, 0)
        for token, weight in zip(np.asarray(found.ids).tolist(), found.weights, strict=True)
    )
    assert encoder.score("a b", "c").scores[0] == pytest.approx(expected, rel=1e-4)


def _text():
    from paredown.executors.encoder_protocol import TokenText

    return TokenText(token_ids=[1])


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_scores_are_the_similarity_that_the_settings_name(similarity):
    encoder = toy_encoder(Head(kind="embedding", pooling=("mean",)), similarity=similarity)
    query, *rows = encoder.embed(["a", *TEXTS]).vectors.astype(np.float64)
    expected = {
        "cosine": lambda d: query @ d / np.linalg.norm(query) / np.linalg.norm(d),
        "dot": lambda d: query @ d,
        "euclidean": lambda d: -np.sqrt(((query - d) ** 2).sum()),
        "manhattan": lambda d: -np.abs(query - d).sum(),
    }[similarity]
    scores = encoder.score("a", TEXTS).scores
    assert np.allclose(scores, [expected(row) for row in rows], atol=1e-5)
    assert encoder.rerank("a", TEXTS, top_n=1).results[0].index == int(np.argmax(scores))


def test_queries_and_documents_get_their_prompts():
    encoder = toy_encoder(prompts={"query": "q ", "document": "d "})
    query = encoder.embed("q a", prompt="").vectors[0]
    rows = encoder.embed(["d b", "d c"], prompt="").vectors
    assert np.allclose(encoder.score("a", ["b", "c"]).scores, rows @ query, atol=1e-6)


def test_a_prompt_that_does_not_count_is_left_out_of_the_mean():
    encoder = toy_encoder(pools_prompt=False)
    tokens = ScriptedEncoder(spec=encoder.model.spec).encode(
        [replace(_text(), token_ids=[2, 7, 8, 9, 3])], "tokens"
    )
    mean = tokens[2:].mean(0)
    found = encoder.embed("b c", prompt="a ").vectors[0]
    assert np.allclose(found, mean / np.linalg.norm(mean), atol=1e-6)
    whole = encoder.embed("b c").vectors[0]
    assert np.allclose(whole, toy_encoder().embed("b c").vectors[0], atol=1e-6)
    with pytest.raises(UnsupportedError, match="only the mean"):
        toy_encoder(Head(kind="embedding", pooling=("cls",)), pools_prompt=False).embed("a")


def test_vectors_have_the_size_that_the_files_ask_for():
    encoder = toy_encoder(cut_size=8, dimensions=(4, 8))
    full = toy_encoder().embed(TEXTS).vectors
    found = encoder.embed(TEXTS).vectors
    cut = full[:, :8] / np.linalg.norm(full[:, :8], axis=1, keepdims=True)
    assert np.allclose(found, cut, atol=1e-6)
    assert encoder.embed(TEXTS, dimensions=32).vectors.shape == (4, 32)
    with pytest.raises(ParameterError, match="dimensions"):
        encoder.embed(TEXTS, dimensions=5)


def test_numbers_that_are_not_finite_are_an_error():
    encoder = toy_encoder()
    encoder.executor.nan_at = {7}
    with pytest.raises(ModelFailedError, match="not finite"):
        encoder.embed(["b", "a"])
    assert encoder.embed("b").vectors.shape == (1, 32)


def test_a_reranker_among_decoders_scores_by_its_answer():
    rng = np.random.default_rng(1)
    answers = rng.standard_normal((2, 32)).astype(np.float32)
    model = replace(
        toy_model(Head(kind="embedding", pooling=("last",)), activation="sigmoid", max_tokens=900),
        answers=answers,
    )
    executor = ScriptedEncoder(spec=model.spec)
    encoder = Encoder.over(BuiltEncoder(executor=executor, model=model))
    scores = encoder.score("a", ["b", "c d"]).scores
    texts = [replace(_text(), token_ids=ids) for batch in executor.batches for ids in batch]
    logits = executor.encode(texts) @ answers.T
    expected = 1 / (1 + np.exp(logits[:, 1] - logits[:, 0]))
    assert sorted(scores.tolist()) == pytest.approx(sorted(expected.tolist()), abs=1e-6)
    with pytest.raises(RequestError, match="no labels"):
        encoder.classify("a")


@pytest.mark.parametrize(
    ("query", "texts"), [("a", []), ([], ["a"]), (["a", "b"], ["c"]), ("a", [5]), (5, ["a"])]
)
def test_senseless_pairs_are_refused(query, texts):
    with pytest.raises((RequestError, TypeError)):
        toy_encoder().score(query, texts)


@pytest.mark.parametrize("top_n", [0, -1, 1.5, "2", True])
def test_a_senseless_number_of_results_is_refused(top_n):
    with pytest.raises(ParameterError, match="top_n"):
        toy_encoder().rerank("a", ["b"], top_n=top_n)
