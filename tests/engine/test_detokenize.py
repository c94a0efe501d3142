"""Text of growing answers: by tables of token texts and by decoding, as the decoded whole."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.gguf_tokenizers import END, write_byte_level, write_sentence_piece
from fakes.toy_executor import ToyTokenizer
from paredown.engine.detokenize import (
    MAX_HELD_TOKENS,
    DecodingDetokenizer,
    StopMatcher,
    make_detokenizer,
    prepare_texts,
)
from paredown.engine.piece_detokenizer import (
    REPLACEMENT,
    ByteLevelDetokenizer,
    SentencePieceDetokenizer,
)
from paredown.models.resolve import resolve_model
from paredown.models.text.token_texts import piece_decoder
from paredown.models.text.tokenizer import Tokenizer

TOKENIZER = ToyTokenizer()
TEXTS = st.text(alphabet=st.sampled_from("ab é€🎉\n"), max_size=30)


@given(
    st.lists(st.one_of(st.integers(0, 511), st.integers(128, 256)), max_size=4 * MAX_HELD_TOKENS),
    st.lists(st.integers(0, 511), max_size=6),
)
def test_deltas_add_up_to_the_decoded_whole(token_ids, prompt):
    prompt_is_cut = TOKENIZER.decode(prompt[-4:]).endswith(REPLACEMENT)
    detokenizer = DecodingDetokenizer(TOKENIZER, prompt)
    deltas = [detokenizer.push(token_id) for token_id in token_ids]
    if len(token_ids) < MAX_HELD_TOKENS:
        assert not any(delta.endswith(REPLACEMENT) for delta in deltas)
    text = "".join(deltas) + detokenizer.flush()
    context = [] if prompt_is_cut else prompt[-4:]
    assert TOKENIZER.decode(context) + text == TOKENIZER.decode(context + token_ids)


def test_a_character_after_many_bytes_that_make_none_is_whole():
    """However many of them come before it."""
    bad, character = TOKENIZER.encode("é")[1:], TOKENIZER.encode("é")
    for num_bad in range(3 * MAX_HELD_TOKENS):
        detokenizer = DecodingDetokenizer(TOKENIZER, [])
        deltas = [detokenizer.push(token_id) for token_id in [*num_bad * bad, *character]]
        assert "".join(deltas) + detokenizer.flush() == num_bad * REPLACEMENT + "é"


@given(TEXTS)
def test_a_cut_character_is_never_shown(text):
    detokenizer = DecodingDetokenizer(TOKENIZER, [])
    deltas = [detokenizer.push(token_id) for token_id in TOKENIZER.encode(text)]
    assert REPLACEMENT not in "".join(deltas)
    assert "".join(deltas) == text
    assert detokenizer.flush() == ""


def test_tokens_that_decode_to_nothing_and_characters_that_never_end_do_not_pile_up():
    seen = []

    class Decoder:
        def decode(self, token_ids):
            seen.append(len(token_ids))
            return "".join(["", " a", REPLACEMENT][i] for i in token_ids).removeprefix(" ")

    detokenizer = DecodingDetokenizer(Decoder(), [0, 0])
    tokens = [1, *[0] * 200, 1, *[2] * 200, 1]
    text = "".join(map(detokenizer.push, tokens)) + detokenizer.flush()
    assert text == "a a" + REPLACEMENT * 200 + " a"
    assert max(seen) <= 2 * MAX_HELD_TOKENS


def test_a_word_boundary_that_the_decoder_drops_at_the_start_is_kept():
    class SentencePiece:
        def decode(self, token_ids):
            return "".join([" a", " b", "c"][i] for i in token_ids).removeprefix(" ")

    detokenizer = DecodingDetokenizer(SentencePiece(), [0])
    assert [detokenizer.push(i) for i in (1, 2, 1)] == [" b", "c", " b"]


def reference_stop(text, stops):
    """Reads one character at a time and looks whether a stop string has just ended."""
    for end in range(len(text) + 1):
        ended = [stop for stop in stops if text[:end].endswith(stop)]
        if ended:
            return text[: end - max(map(len, ended))], True
    return text, False


@given(
    st.text(alphabet="abc", max_size=30),
    st.lists(st.text(alphabet="abc", min_size=1, max_size=5), max_size=4),
    st.data(),
)
def test_stop_strings_do_not_depend_on_how_the_text_is_cut(text, stops, data):
    matcher, shown, rest = StopMatcher(tuple(stops)), "", text
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        shown += matcher.push(rest[:size])
        rest = rest[size:]
        expected, _ = reference_stop(text, stops)
        assert expected.startswith(shown)
    shown += matcher.flush()
    assert (shown, matcher.is_stopped) == reference_stop(text, stops)


def test_only_a_possible_stop_string_is_held_back():
    matcher = StopMatcher(("END", "###"))
    assert matcher.push("well E") == "well "
    assert matcher.push("N") == ""
    assert matcher.push("d #") == "ENd "
    assert matcher.push("x") == "#x"


def pushed(tokenizer, prompt, token_ids):
    detokenizer = make_detokenizer(tokenizer, prompt)
    return [detokenizer.push(token_id) for token_id in token_ids], detokenizer.flush()


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory):
    folder = tmp_path_factory.mktemp("byte-level")
    write_byte_level(folder, (r"\w+|\W",), ignore_merges=False)
    return [Tokenizer.open(folder), Tokenizer.open(resolve_model(None))]


@pytest.fixture(scope="module", params=[True, False], ids=["prefix", "no prefix"])
def sentence_piece(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sentence-piece")
    write_sentence_piece(folder, request.param)
    return Tokenizer.open(folder)


def token_ids_of(tokenizer):
    """Of text, of single bytes, and any, beyond the vocabulary too."""
    vocabulary = tokenizer.vocabulary.items()
    short = sorted(one for piece, one in vocabulary if len(piece) == 1 or piece.startswith("<0x"))
    return st.one_of(
        st.text(max_size=12).map(tokenizer.encode),
        st.lists(st.sampled_from(short), max_size=12),
        st.lists(st.integers(0, tokenizer.vocab_size + 3), max_size=12),
    )


@settings(deadline=None)
@given(st.data())
def test_bytes_add_up_to_the_decoded_whole(byte_level, data):
    for tokenizer in byte_level:
        strategy = token_ids_of(tokenizer)
        prompt, token_ids = data.draw(strategy), data.draw(strategy) + data.draw(strategy)
        assert isinstance(make_detokenizer(tokenizer, prompt), ByteLevelDetokenizer)
        deltas, rest = pushed(tokenizer, prompt, token_ids)
        assert "".join(deltas) + rest == tokenizer.decode(token_ids)
        # A character comes with its last byte, and only the last one may be cut.
        assert len(rest) <= 1
        for i in range(len(token_ids)):
            known = tokenizer.decode(token_ids[: i + 1])
            assert known.removesuffix(REPLACEMENT).startswith("".join(deltas[: i + 1])) or (
                known == "".join(deltas[: i + 1])
            )


def told(pieces, max_stripped):
    """Piece by piece: of a run of byte tokens the characters before the first that makes none, then
    U+FFFD for each byte."""
    text, run = "", b""
    for piece in [*pieces, "end"]:
        if isinstance(piece, bytes):
            run += piece
            continue
        good = len(run)
        try:
            run.decode()
        except UnicodeDecodeError as error:
            good = error.start
        text += run[:good].decode() + REPLACEMENT * (len(run) - good) + piece
        run = b""
    text = text.removesuffix("end")
    return text.removeprefix(" ") if max_stripped else text


@settings(deadline=None)
@given(st.data())
def test_pieces_add_up_to_the_decoded_whole(sentence_piece, data):
    tokenizer, texts = sentence_piece, sentence_piece.token_texts
    token_ids = data.draw(token_ids_of(tokenizer)) + data.draw(token_ids_of(tokenizer))
    pieces = [texts.of(one) for one in token_ids if texts.of(one)]
    for prompt in ([], tokenizer.encode(END), tokenizer.encode("the ship")):
        detokenizer = make_detokenizer(tokenizer, prompt)
        assert isinstance(detokenizer, SentencePieceDetokenizer)
        deltas, rest = pushed(tokenizer, prompt, token_ids)
        text, before = "".join(deltas) + rest, tokenizer.decode(prompt)
        assert text == told(pieces, 0 if before else texts.max_stripped)
        whole = tokenizer.decode(prompt + token_ids)
        if REPLACEMENT not in whole:
            assert text == whole[len(before) :]


def test_both_kinds_give_what_decoding_gives_and_no_later(byte_level, sentence_piece):
    text = "It was late — “naïve” 日本 🙂🙃 the ship\n\n  came   home."
    for tokenizer in (*byte_level, sentence_piece):
        prompt, token_ids = tokenizer.encode("In the evening"), tokenizer.encode(text)
        slow, told_slowly, told_soon = DecodingDetokenizer(tokenizer, prompt), "", ""
        for token_id, delta in zip(token_ids, pushed(tokenizer, prompt, token_ids)[0], strict=True):
            told_slowly += slow.push(token_id)
            told_soon += delta
            assert told_soon.startswith(told_slowly)
        assert told_soon == told_slowly == tokenizer.decode(prompt + token_ids)[-len(told_soon) :]


@pytest.mark.parametrize(
    "decoder",
    [
        None,
        {"type": "WordPiece", "prefix": "##", "cleanup": True},
        {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
        {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
        {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"Regex": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
            ],
        },
    ],
    ids=str,
)
def test_other_decoders_have_no_table(decoder):
    assert piece_decoder(json.dumps(decoder).encode()) is None


def test_a_table_is_the_same_made_at_once_or_as_tokens_come():
    tokenizer, other = Tokenizer.open(resolve_model(None)), Tokenizer.open(resolve_model(None))
    vocab_size = tokenizer.vocab_size + 3  # a model may have more ids than its tokenizer
    prepare_texts(tokenizer, vocab_size)
    texts = tokenizer.token_texts
    assert len(texts) == vocab_size
    assert texts[-1] == ""
    for token_id in (vocab_size // 2, 7, vocab_size - 1):
        assert other.token_texts.of(token_id) == texts[token_id]
    assert other.token_texts.count(None) == vocab_size - 3
    assert [other.token_texts.of(one) for one in range(vocab_size)] == texts
