"""Scores beside a softmax in float64 over all logits; windows beside the harness's own rule."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.byte_tokenizer import write_byte_tokenizer
from paredown import LLM, SamplingParams
from paredown.engine.score import encode_pair, fit_window, rolling_windows
from paredown.errors import RequestError
from paredown.executors.protocol import SequenceSlice
from paredown.models.text.tokenizer import Tokenizer

NUM_PAGES = 6
WINDOW = NUM_PAGES * 16
PREFIX = 0


class ByteTokenizer:
    """Byte b is b + 1; a space and the letter after it are one token."""

    def __init__(self, prefix: int | None = PREFIX, add_bos: bool = False) -> None:
        self.bos_token_id = self.prefix_token_id = prefix
        self.prompt_prefix = (prefix,) if add_bos and prefix is not None else ()

    def encode(self, text: str, /) -> list[int]:
        ids: list[int] = []
        for byte in text.encode():
            if ids and ids[-1] == ord(" ") + 1 and byte != ord(" "):
                ids[-1] = 256 + byte
            else:
                ids.append(byte + 1)
        return ids

    def render_chat(self, messages: list[dict[str, object]], /) -> str:
        raise NotImplementedError


@pytest.fixture(scope="module", params=["native", "torch"])
def llm(request: pytest.FixtureRequest) -> LLM:
    """Pages for a window far below the model's context."""
    return LLM(num_pages=NUM_PAGES, num_threads=1, executor=request.param)


def reference(llm: LLM, token_ids: list[int]) -> tuple[list[float], list[bool]]:
    """Of every token but the first, from one pass over all of them."""
    one = SequenceSlice(
        token_ids=token_ids, start=0, pages=list(range(NUM_PAGES)), num_logits=len(token_ids)
    )
    logits = llm.engine.executor.step([one])[:-1].astype(np.float64)
    largest = logits.max(axis=1, keepdims=True)
    norms = largest[:, 0] + np.log(np.exp(logits - largest).sum(axis=1))
    chosen = logits[np.arange(len(logits)), token_ids[1:]]
    return list(chosen - norms), list(logits.argmax(axis=1) == token_ids[1:])


def test_scores_are_the_models_log_probabilities(llm: LLM) -> None:
    pairs = [("It was late in the", " evening, and so"), ("Once upon a", " time"), ("A", " cat")]
    scores = llm.score(pairs)
    for (context, continuation), score in zip(pairs, scores, strict=True):
        before, after = encode_pair(llm.tokenizer, context, continuation)
        logprobs, are_greedy = reference(llm, before + after)
        assert score.token_ids == after
        assert score.logprobs == pytest.approx(logprobs[-len(after) :], abs=1e-5)
        assert score.are_greedy == are_greedy[-len(after) :]
        assert score.logprob == pytest.approx(sum(score.logprobs))
        assert score.num_dropped_tokens == 0
    assert llm.score(pairs) == scores
    assert [llm.score([pair])[0] for pair in pairs] == scores


def test_what_greedy_decoding_writes_is_greedy(llm: LLM) -> None:
    prompt = llm.tokenizer.encode("It was late in the")
    (written,) = llm.generate([prompt], SamplingParams(temperature=0, max_tokens=9, logprobs=0))
    (score,) = llm.score([(prompt, written.token_ids)])
    assert score.is_greedy
    assert score.logprobs == [one.chosen.logprob for one in written.logprobs]
    (other,) = llm.score([(prompt, [*written.token_ids[:-1], 7])])
    assert other.are_greedy == [True] * 8 + [False]
    assert not other.is_greedy


def test_a_context_that_is_too_long_loses_its_start(llm: LLM) -> None:
    context, after = list(range(10, 10 + WINDOW)), [5, 6, 7]
    (score,) = llm.score([(context, after)])
    assert score.num_dropped_tokens == 3
    (short,) = llm.score([(context[3:], after)])
    assert (short.logprobs, short.num_dropped_tokens) == (score.logprobs, 0)


def test_a_text_is_scored_in_windows(llm: LLM) -> None:
    token_ids = [(7 * i) % 800 + 3 for i in range(2 * WINDOW + 10)]
    score, empty = llm.score_rolling([token_ids, []])
    assert score.token_ids == token_ids
    prefix = llm.tokenizer.prefix_token_id
    first, _ = reference(llm, [prefix, *token_ids[: WINDOW - 1]])
    last, _ = reference(llm, token_ids[-WINDOW:])
    assert score.logprobs[: WINDOW - 1] == pytest.approx(first, abs=1e-5)
    assert score.logprobs[-12:] == pytest.approx(last[-12:], abs=1e-5)
    assert (empty.logprob, empty.token_ids) == (0.0, [])


@given(
    length=st.integers(0, 90),
    max_tokens=st.integers(2, 30),
)
def test_windows_are_those_of_the_harness(length: int, max_tokens: int) -> None:
    """lm_eval.utils.get_rolling_token_windows and make_disjoint_window, written out."""
    ids = list(range(1, length + 1))
    size, predicted, wanted = max_tokens - 1, 0, []
    while predicted < length:
        count = min(length - predicted, size)
        end = predicted + count
        inputs = [PREFIX, *ids[: end - 1]] if predicted == 0 else ids[end - size - 1 : end - 1]
        context = inputs[: len(inputs) - (count - 1)]
        wanted.append((context, ids[end - count : end]))
        predicted = end
    windows = rolling_windows(ByteTokenizer(), ids, max_tokens)
    assert wanted == [
        (one.token_ids[: -one.num_scored], one.token_ids[-one.num_scored :]) for one in windows
    ]
    assert all(len(one.token_ids) <= max_tokens for one in windows)


@given(
    context=st.lists(st.integers(0, 9), min_size=1, max_size=40),
    after=st.lists(st.integers(0, 9), min_size=1, max_size=19),
)
def test_a_window_keeps_the_continuation_whole(context: list[int], after: list[int]) -> None:
    window = fit_window(context, after, 20)
    assert len(window.token_ids) == min(20, len(context) + len(after))
    assert (context + after)[window.num_dropped_tokens :] == window.token_ids
    assert window.num_scored == len(after) < len(window.token_ids)


def test_the_border_between_context_and_continuation() -> None:
    one = ByteTokenizer()
    joined = [256 + ord("b")]
    assert encode_pair(one, "a", " b") == ([98], joined)
    assert encode_pair(one, "a ", "b") == ([98], joined)
    assert encode_pair(one, "", "b") == ([PREFIX], [99])
    assert encode_pair(one, " ", "b") == ([PREFIX], joined)
    assert encode_pair(one, [], [PREFIX, 5]) == ([PREFIX], [5])
    assert encode_pair(one, [4], "b") == ([4], [99])
    assert encode_pair(ByteTokenizer(add_bos=True), "a", "b") == ([PREFIX, 98], [99])
    assert encode_pair(ByteTokenizer(prefix=98, add_bos=True), "a", "b") == ([98], [99])


def test_what_cannot_be_scored_is_refused(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RequestError, match="no tokens of its own"):
        llm.score([("A", " cat"), ("A", "")])
    with pytest.raises(RequestError, match="longer than the model's window"):
        llm.score([([1], [2] * WINDOW)])
    with pytest.raises(RequestError, match="no bos and no eos"):
        encode_pair(ByteTokenizer(prefix=None), "", "b")
    with pytest.raises(RequestError, match="token id"):
        llm.score([([1], [10**6, 1])])

    def fail(slices: object) -> None:
        raise MemoryError("no more")

    with monkeypatch.context() as patch:
        patch.setattr(llm.engine.executor, "step", fail)
        with pytest.raises(RequestError, match="MemoryError: no more"):
            llm.score([("A", " cat"), ("A", " dog")])
    assert not llm.engine.has_work
    assert llm.score([("A", " cat")])[0].logprob < 0


@pytest.mark.parametrize(
    ("named", "numbered", "wanted"),
    [
        ({"bos_token": "A", "eos_token": "B"}, {"bos_token_id": 0}, "A"),
        ({"bos_token": None, "eos_token": "B"}, {"bos_token_id": 0}, "B"),
        ({}, {"bos_token_id": 0, "eos_token_id": 5}, "<|endoftext|>"),
        ({}, {"eos_token_id": [0, 5]}, "<|endoftext|>"),
        ({}, {}, None),
    ],
)
def test_the_prefix_token(
    tmp_path: Path, named: object, numbered: object, wanted: str | None
) -> None:
    """The tokenizer's word counts before the config's, as for the harness, which sees no other."""
    write_byte_tokenizer(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(named))
    (tmp_path / "generation_config.json").write_text(json.dumps(numbered))
    tokenizer = Tokenizer.open(tmp_path)
    assert tokenizer.prefix_token_id == (tokenizer.encode(wanted)[0] if wanted else None)


def test_settings_for_each_prompt(llm: LLM) -> None:
    prompts = ["It was", "Once upon", "He"]
    params = [
        SamplingParams(temperature=0, max_tokens=3),
        SamplingParams(n=2, seed=1, max_tokens=5),
        SamplingParams(seed=3, max_tokens=2, ignore_eos=True),
    ]
    together = [one.token_ids for one in llm.generate(prompts, params)]
    alone = [
        one.token_ids
        for prompt, its in zip(prompts, params, strict=True)
        for one in llm.generate(prompt, its)
    ]
    assert together == alone
    assert len(together) == 4
    with pytest.raises(RequestError, match="one SamplingParams for each prompt"):
        llm.generate(prompts, params[:2])
