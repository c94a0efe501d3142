from hypothesis import given
from hypothesis import strategies as st

from paredown.engine.detokenize import REPLACEMENT, Detokenizer, StopMatcher
from toy_executor import ToyTokenizer

TOKENIZER = ToyTokenizer()
TEXTS = st.text(alphabet=st.sampled_from("ab é€🎉\n"), max_size=30)


@given(st.lists(st.integers(0, 511), max_size=40), st.lists(st.integers(0, 511), max_size=6))
def test_deltas_add_up_to_the_decoded_whole(token_ids, prompt):
    prompt_is_cut = TOKENIZER.decode(prompt[-4:]).endswith(REPLACEMENT)
    detokenizer = Detokenizer(TOKENIZER, prompt)
    deltas = [detokenizer.push(token_id) for token_id in token_ids]
    assert not any(delta.endswith(REPLACEMENT) for delta in deltas)
    text = "".join(deltas) + detokenizer.flush()
    context = [] if prompt_is_cut else prompt[-4:]
    assert TOKENIZER.decode(context) + text == TOKENIZER.decode(context + token_ids)


@given(TEXTS)
def test_a_cut_character_is_never_shown(text):
    detokenizer = Detokenizer(TOKENIZER, [])
    deltas = [detokenizer.push(token_id) for token_id in TOKENIZER.encode(text)]
    assert REPLACEMENT not in "".join(deltas)
    assert "".join(deltas) == text
    assert detokenizer.flush() == ""


def test_a_word_boundary_that_the_decoder_drops_at_the_start_is_kept():
    class SentencePiece:
        def decode(self, token_ids):
            return "".join([" a", " b", "c"][i] for i in token_ids).removeprefix(" ")

    detokenizer = Detokenizer(SentencePiece(), [0])
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
