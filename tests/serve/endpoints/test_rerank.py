"""POST /v1/rerank, /rerank, /v1/score and /v1/classify."""

import numpy as np
import pytest

from drivers.encoder_server import encoder_server, toy_model
from drivers.running_server import running_server
from fakes.scripted_encoder import SPARSE, TOKEN_VECTORS, classifier
from paredown.models.encoder_settings import LateInteraction

DOCUMENTS = ["c d", "a b", "a b c d e f g", "z"]


@pytest.fixture(scope="module")
def server():
    with encoder_server() as running:
        yield running


@pytest.fixture(scope="module")
def cross_encoder():
    with encoder_server(toy_model(classifier(1), activation="sigmoid")) as running:
        yield running


def test_a_bi_encoder_ranks_by_cosine(server):
    query, *vectors = server.embed(["a b", *DOCUMENTS])
    expected = np.array(vectors) @ query
    found = server.rank("a b", DOCUMENTS)
    assert [one["index"] for one in found] == np.argsort(-expected).tolist()
    scores = [one["relevance_score"] for one in found]
    assert np.allclose(scores, np.sort(expected)[::-1], atol=1e-6)
    assert found[0]["index"] == 1


@pytest.mark.parametrize("path", ["/v1/rerank", "/rerank"])
def test_both_paths_take_documents_as_texts_and_as_objects(server, path):
    plain = server.post(path, query="a", documents=DOCUMENTS)[1]
    objects = [{"text": text} for text in DOCUMENTS]
    status, found = server.post(path, query="a", documents=objects, top_n=2, return_documents=True)
    assert status == 200
    assert len(found["results"]) == 2
    for one, expected in zip(found["results"], plain["results"][:2], strict=True):
        assert one == expected | {"document": {"text": DOCUMENTS[one["index"]]}}
    assert found["usage"] == plain["usage"]
    assert set(plain["results"][0]) == {"index", "relevance_score"}


def test_equal_documents_stand_in_their_order(server):
    found = server.rank("a", ["b", "b", "c", "b"])
    equal = [one["index"] for one in found if one["index"] != 2]
    assert equal == [0, 1, 3]


def test_long_documents_are_cut_and_named_unless_that_is_refused(server):
    documents = ["a", "a b " * 60]
    found = {one["index"]: one for one in server.rank("a", documents)}
    assert found[1]["truncated"] is True
    assert "truncated" not in found[0]
    status, reply = server.post("/v1/rerank", query="a", documents=documents, truncate="refuse")
    assert (status, reply["error"]["param"]) == (400, "documents")


BAD_RANKING = [
    ({"documents": []}, "documents"),
    ({"documents": "a"}, "documents"),
    ({"documents": [1]}, "documents"),
    ({"documents": [{"body": "a"}]}, "documents"),
    ({"documents": ["a"] * 2049}, "documents"),
    ({"documents": None}, "documents"),
    ({"query": 5}, "query"),
    ({"query": None}, "query"),
    ({"top_n": 0}, "top_n"),
    ({"top_n": "2"}, "top_n"),
    ({"max_chunks_per_doc": 2}, "max_chunks_per_doc"),
    ({"truncate": "middle"}, "truncate"),
]


@pytest.mark.parametrize(("fields", "param"), BAD_RANKING)
def test_bad_fields_are_refused_by_name(server, fields, param):
    status, found = server.post("/v1/rerank", **{"query": "a", "documents": ["b"], **fields})
    assert (status, found["error"]["param"]) == (400, param), found


def test_a_cross_encoder_reads_query_and_document_as_one(cross_encoder):
    status, found = cross_encoder.post("/v1/rerank", query="a b", documents=["c", "d e"])
    assert status == 200
    assert found["usage"]["prompt_tokens"] == 6 + 7
    assert all(0 < one["relevance_score"] < 1 for one in found["results"])
    alone = [
        cross_encoder.rank("a b", [document])[0]["relevance_score"] for document in ("c", "d e")
    ]
    together = {one["index"]: one["relevance_score"] for one in found["results"]}
    assert [together[0], together[1]] == alone


def test_a_cross_encoder_scores_as_it_ranks(cross_encoder):
    ranked = {one["index"]: one["relevance_score"] for one in cross_encoder.rank("a", DOCUMENTS)}
    status, found = cross_encoder.post("/v1/score", text_1="a", text_2=DOCUMENTS)
    assert status == 200
    assert {one["index"]: one["score"] for one in found["data"]} == ranked
    assert {one["object"] for one in found["data"]} == {"score"}


def test_texts_are_scored_in_pairs(server):
    first, second = ["a", "b c", "d"], ["e", "b c", "f"]
    found = server.post("/v1/score", text_1=first, text_2=second)[1]
    for one, pair in zip(found["data"], zip(first, second, strict=True), strict=True):
        alone = server.post("/v1/score", text_1=pair[0], text_2=pair[1])[1]["data"][0]
        assert one["score"] == pytest.approx(alone["score"], abs=1e-6)
    assert found["data"][1]["score"] == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(
    ("first", "second"), [([], "a"), ("a", []), (["a", "b"], ["c"]), (["a", "b"], ["c"] * 3)]
)
def test_pairs_that_do_not_fit_are_refused(server, first, second):
    assert server.post("/v1/score", text_1=first, text_2=second)[0] == 400


def test_labels_have_probabilities():
    model = toy_model(classifier(3), labels=("bad", "so so", "good"))
    with encoder_server(model) as server:
        status, found = server.post("/v1/classify", input=["a", "b c"])
        assert status == 200
        for number, one in enumerate(found["data"]):
            assert (one["index"], one["num_classes"]) == (number, 3)
            assert sum(one["probs"]) == pytest.approx(1, abs=1e-5)
            best = int(np.argmax(one["probs"]))
            assert one["label"] == ("bad", "so so", "good")[best]
        pair = {"text": "a", "text_pair": "b"}
        status, found = server.post("/v1/classify", input=[pair])
        assert (status, found["usage"]["prompt_tokens"]) == (200, 5)
        for given in ([], "", [pair, "a"], [{"text": "a"}], 5):
            status, found = server.post("/v1/classify", input=given)
            assert (status, found["error"]["param"]) == (400, "input")
        status, found = server.post("/v1/rerank", query="a", documents=["b"])
        assert (status, found["error"]["code"]) == (400, "wrong_task")


def test_several_labels_may_hold_where_each_has_a_sigmoid():
    model = toy_model(classifier(2), labels=("x", "y"), activation="sigmoid")
    with encoder_server(model) as server:
        probabilities = server.post("/v1/classify", input=["a"] * 2)[1]["data"][0]["probs"]
        assert sum(probabilities) != pytest.approx(1, abs=1e-3)


def late_model(**settings):
    late = LateInteraction(query_marker="[Q]", document_marker="[D]", **settings)
    return toy_model(TOKEN_VECTORS, late_interaction=late)


# B09
def test_late_interaction_scores_a_document_the_same_alone_and_beside_others():
    with encoder_server(late_model()) as server:
        documents = ["b", "b b b b b b b"]
        together = {one["index"]: one["relevance_score"] for one in server.rank("a a a", documents)}
        for index, document in enumerate(documents):
            alone = server.rank("a a a", [document])[0]["relevance_score"]
            assert together[index] == pytest.approx(alone, abs=1e-5)


def test_expansion_counts_only_where_the_settings_say_so():
    with (
        encoder_server(late_model()) as plain,
        encoder_server(late_model(expansion_tokens=32)) as expanded,
    ):
        usage = [
            one.post("/v1/rerank", query="a a a", documents=["b"])[1]["usage"]["prompt_tokens"]
            for one in (plain, expanded)
        ]
    assert usage == [6 + 4, 32 + 4]


def test_a_document_of_the_greatest_length_leaves_room_for_its_marker():
    with encoder_server(late_model()) as server:
        full = "b " * 61
        assert "truncated" not in server.rank("a", [full])[0]
        assert server.rank("a", [full + "b"])[0]["truncated"] is True
        status, _ = server.post("/v1/rerank", query="a", documents=[full], truncate="refuse")
        assert status == 200


@pytest.mark.parametrize("head", [TOKEN_VECTORS, SPARSE, classifier(2)])
def test_models_without_vectors_of_texts_say_what_they_make(head):
    with encoder_server(toy_model(head)) as server:
        status, found = server.post("/v1/embeddings", input="a")
        assert (status, found["error"]["code"]) == (400, "wrong_task")


def test_sparse_vectors_rank():
    with encoder_server(toy_model(SPARSE, similarity="dot")) as server:
        found = server.rank("a b", DOCUMENTS)
        scores = [one["relevance_score"] for one in found]
        assert scores == sorted(scores, reverse=True)
        assert found[0]["index"] == 1


def test_a_model_that_generates_says_so_on_these_routes():
    with running_server() as server:
        for path in ("/v1/embeddings", "/v1/rerank", "/rerank", "/v1/score", "/v1/classify"):
            reply = server.client.post(path, json={"model": "toy", "input": "a"})
            assert reply.status_code == 400
            assert reply.json()["error"]["code"] == "wrong_task"
            assert "it generates" in reply.json()["error"]["message"]
