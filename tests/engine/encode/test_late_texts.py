"""Late interaction: markers, expansion, skipped words and lengths, as ColBERT reads texts (B09)."""

import numpy as np
import pytest

from drivers.encoder_server import encoder_server, toy_model
from fakes.scripted_encoder import TOKEN_VECTORS, ScriptedEncoder, encoder_spec
from paredown.engine.build_encoder import BuiltEncoder
from paredown.engine.encode.late_texts import read_late_texts
from paredown.engine.encoder import Encoder
from paredown.errors import CheckpointError, RequestError
from paredown.models.encoder_settings import LateInteraction

CLS, SEP, MASK, Q, D, A = 2, 3, 4, 5, 6, 7
COMMA = 7 + 26 + ",".join([""]).count("x") + "!\"#$%&'()*+,".index(",")


def late_model(**settings):
    late = {"query_marker": "[Q]", "document_marker": "[D]"} | settings
    return toy_model(TOKEN_VECTORS, late_interaction=LateInteraction(**late))


def query(model, text: str, truncate: str = "refuse"):
    return read_late_texts(model, [text], is_query=True, truncate=truncate)


def document(model, text: str, truncate: str = "refuse"):
    return read_late_texts(model, [text], is_query=False, truncate=truncate)


def test_markers_stand_in_second_place():
    model = late_model()
    assert query(model, "a").texts[0].token_ids == [CLS, Q, A, SEP]
    assert document(model, "a").texts[0].token_ids == [CLS, D, A, SEP]
    plain = late_model(query_marker="", document_marker="")
    assert query(plain, "a").texts[0].token_ids == [CLS, A, SEP]


def test_a_query_is_filled_up_only_where_the_settings_say_so():
    filled = query(late_model(expansion_tokens=8), "a")
    assert filled.texts[0].token_ids == [CLS, Q, A, SEP, MASK, MASK, MASK, MASK]
    assert filled.texts[0].num_unseen == 4
    assert filled.places == [list(range(8))]
    seen = query(late_model(expansion_tokens=8, sees_expansion=True), "a")
    assert seen.texts[0].num_unseen == 0
    assert document(late_model(expansion_tokens=8), "a").texts[0].token_ids == [CLS, D, A, SEP]
    assert query(late_model(expansion_token="[PAD]", expansion_tokens=5), "a").texts[0].token_ids[
        4:
    ] == [0]


def test_a_long_query_is_cut_to_its_expansion_or_kept():
    text = "a " * 20
    cut = query(late_model(expansion_tokens=8), text)
    assert cut.texts[0].token_ids == [CLS, Q, *[A] * 5, SEP]
    assert cut.texts[0].num_unseen == 0
    kept = query(late_model(expansion_tokens=8, cuts_at_expansion=False), text)
    assert len(kept.texts[0].token_ids) == 23
    with pytest.raises(RequestError, match="longer than"):
        query(late_model(num_query_tokens=8), text)
    assert len(query(late_model(num_query_tokens=8), text, "end").texts[0].token_ids) == 8


def test_a_document_of_the_greatest_length_keeps_its_marker_and_its_end():
    model = late_model(num_document_tokens=10)
    whole = document(model, "a " * 7)
    assert whole.texts[0].token_ids == [CLS, D, *[A] * 7, SEP]
    assert whole.counts.cut == ()
    cut = document(model, "a " * 8, "end")
    assert cut.texts == whole.texts
    assert cut.counts.cut == (0,)
    with pytest.raises(RequestError, match="10 tokens, at most 9"):
        document(model, "a " * 8)


def test_skipped_words_have_no_vector_in_documents():
    model = late_model(skipped_words=(",", "no word"))
    assert COMMA in document(model, "a , a").texts[0].token_ids
    assert document(model, "a , a").token_ids == [[CLS, D, A, A, SEP]]
    assert COMMA in query(model, "a , a").token_ids[0]
    both = late_model(skipped_words=(",",), skips_in_queries=True)
    assert COMMA not in query(both, "a , a").token_ids[0]


def test_a_marker_that_the_tokenizer_lacks_is_refused():
    with pytest.raises(CheckpointError, match="marker"):
        query(late_model(query_marker="[X]"), "a")


def test_token_vectors_belong_to_their_tokens():
    model = late_model(skipped_words=(",",))
    encoder = Encoder.over(BuiltEncoder(executor=ScriptedEncoder(spec=model.spec), model=model))
    found = encoder.token_vectors(["a , a", "a a"])
    assert [len(one) for one in found.vectors] == [len(one) for one in found.token_ids] == [5, 5]
    assert found.counts.num_tokens == (6, 5)
    # The scripted vector of a token depends on its place, which a skipped word before it keeps.
    assert (found.vectors[0][2] == found.vectors[1][2]).all()
    assert not (found.vectors[0][3] == found.vectors[1][3]).all()
    with pytest.raises(RequestError, match="token_vectors"):
        encoder.embed("a")


class Opposed(ScriptedEncoder):
    """Queries point one way and documents the other: no two tokens are similar."""

    def _tokens(self, text, output):
        found = np.abs(super()._tokens(text, output))
        return found if Q in text.token_ids else -found


def test_no_padding_wins_where_every_similarity_is_negative():
    model = late_model()
    with encoder_server(model, Opposed(spec=encoder_spec(TOKEN_VECTORS))) as server:
        documents = ["b", "b b b b b b b"]
        found = {one["index"]: one["relevance_score"] for one in server.rank("a a a", documents)}
        for index, text in enumerate(documents):
            assert found[index] < 0
            alone = server.rank("a a a", [text])[0]["relevance_score"]
            assert found[index] == pytest.approx(alone, abs=1e-5)


def test_scores_are_sums_of_maxima():
    model = late_model(expansion_tokens=8)
    executor = ScriptedEncoder(spec=model.spec)
    encoder = Encoder.over(BuiltEncoder(executor=executor, model=model))
    texts = ["b", "c d e", "a"]
    asked = encoder.token_vectors("a", is_query=True).vectors[0].astype(np.float64)
    expected = [
        sum(max(float(q @ d) for d in one.astype(np.float64)) for q in asked)
        for one in encoder.token_vectors(texts).vectors
    ]
    assert np.allclose(encoder.score("a", texts).scores, expected, atol=1e-5)
