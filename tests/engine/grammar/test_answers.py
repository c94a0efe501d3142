"""Answers under a grammar: their form, alone and beside others, with and without speculation."""

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import replace

import jsonschema
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drivers.exactness_matrix import bits
from fakes.knowing_proposer import KnowingProposer
from paredown.engine.async_llm import AsyncLLM
from paredown.engine.draw_limits import DrawLimits
from paredown.engine.engine import Engine
from paredown.engine.grammar.grammar import Grammar, GrammarError
from paredown.engine.llm import LLM, Completion
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.engine.speculate.speculation_config import SpeculationConfig
from paredown.engine.speculate.speculator import Speculator
from paredown.executors.protocol import SequenceSlice

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["old", "new"]}, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
SCHEMA = Grammar.json_schema(PERSON)
GRAMMARS = {
    "schema": SCHEMA,
    "regex": Grammar(kind="regex", text=r"[0-9]{3}-[a-f]{2,5}"),
    "choice": Grammar.choice(["yes", "no", "it depends: « 東京 »"]),
    "lark": Grammar(kind="lark", text='start: "the " noun (" and " noun)?\nnoun: "cat" | "dog"'),
    "gbnf": Grammar(kind="lark", text='root ::= "a" [0-9] [0-9]? "z"'),
    "object": Grammar(kind="json_object"),
}


def params(grammar: Grammar | None = SCHEMA, **options: object) -> SamplingParams:
    given: dict[str, object] = {"temperature": 1.0, "seed": 3, "max_tokens": 100, "logprobs": 1}
    return SamplingParams(grammar=grammar, **(given | options))  # type: ignore[arg-type]


def facts(one: Completion) -> tuple[object, ...]:
    return one.text, one.token_ids, one.finish_reason, bits(one.logprobs)


@pytest.fixture(scope="module")
def native() -> Iterator[LLM]:
    built = LLM(None, num_pages=128, num_threads=1)
    yield built
    built.engine.grammars.close()


def fits(name: str, text: str) -> bool:
    if name == "schema":
        jsonschema.validate(json.loads(text), PERSON)
        return True
    if name == "object":
        return isinstance(json.loads(text), dict)
    if name == "choice":
        return text in json.loads(GRAMMARS["choice"].text)
    patterns = {
        "regex": r"[0-9]{3}-[a-f]{2,5}",
        "lark": r"the (cat|dog)( and (cat|dog))?",
        "gbnf": r"a[0-9]{1,2}z",
    }
    return re.fullmatch(patterns[name], text) is not None


@pytest.mark.parametrize("name", GRAMMARS)
@pytest.mark.parametrize("temperature", [0, 1.0])
def test_an_answer_has_the_form_of_its_grammar(native: LLM, name: str, temperature: float) -> None:
    some = [params(GRAMMARS[name], temperature=temperature, seed=i) for i in range(4)]
    answers = native.generate(["It was"] * 4, some)
    ended = [one for one in answers if one.finish_reason == "stop"]
    assert all(one.error is None for one in answers)
    assert ended or name == "object"  # any object may go on and on
    for one in ended:
        assert fits(name, one.text), one.text
        assert one.token_ids[-1] in native.tokenizer.eos_token_ids


def test_a_constrained_answer_is_the_same_alone_and_beside_others(native: LLM) -> None:
    asked = [params(GRAMMARS[name], seed=5, max_tokens=40) for name in GRAMMARS]
    asked += [params(None, seed=6, max_tokens=40), params(None, temperature=0, max_tokens=40)]
    together = native.generate(["Once upon a time"] * len(asked), asked)
    for one, wanted in zip(together, asked, strict=True):
        (alone,) = native.generate("Once upon a time", wanted)
        assert facts(one) == facts(alone)


def test_the_torch_executor_follows_grammars_too(native: LLM) -> None:
    llm = LLM(None, num_pages=64, num_threads=1, executor="torch")
    asked = [params(GRAMMARS["regex"], max_tokens=12), params(GRAMMARS["choice"], max_tokens=12)]
    asked.append(params(None, seed=6, max_tokens=5))
    together = llm.generate(["It was"] * 3, asked)
    assert fits("regex", together[0].text)
    assert fits("choice", together[1].text)
    for one, wanted in zip(together, asked, strict=True):
        assert facts(llm.generate("It was", wanted)[0]) == facts(one)


def test_neighbours_have_the_bits_that_they_have_without_grammars(native: LLM) -> None:
    free = [params(None, seed=i, max_tokens=30) for i in range(3)]
    alone = native.generate(["It was"] * 3, free)
    beside = native.generate(["It was"] * 6, [*free, *(params(seed=i) for i in range(3))])
    assert [facts(one) for one in beside[:3]] == [facts(one) for one in alone]


def test_each_of_n_answers_follows_the_grammar_by_itself(native: LLM) -> None:
    together = native.generate("It was", params(n=4, seed=9))
    alone = [native.generate("It was", params(seed=9 + i))[0] for i in range(4)]
    assert [facts(one) for one in together] == [facts(one) for one in alone]
    assert len({one.text for one in together}) > 1


@pytest.mark.parametrize("kind", ["ngram", "suffix", "draft"])
def test_speculation_changes_no_constrained_answer(native: LLM, kind: str) -> None:
    speculation = SpeculationConfig(kind=kind, max_draft_tokens=4, is_adaptive=False)
    fast = LLM(None, num_pages=128, num_threads=1, speculation=speculation)
    asked = [params(GRAMMARS[name], seed=i, max_tokens=60) for i in (1, 2) for name in GRAMMARS]
    asked.append(params(None, seed=3, max_tokens=60))
    prompts = ['{"name": "old", "age": 15, "tags": ["old"]} and 123-abc'] * len(asked)
    expected = native.generate(prompts, asked)
    assert [facts(one) for one in fast.generate(prompts, asked)] == list(map(facts, expected))
    assert fast.engine.speculator is not None
    assert fast.engine.speculator.stats.failure is None
    assert sum(fast.engine.speculator.stats.num_accepted) > 0


def run(engine: Engine, prompt: list[int], asked: list[SamplingParams]) -> list[list[int]]:
    requests = [engine.submit(prompt, one) for one in asked]
    while engine.has_work:
        engine.step()
    return [one.token_ids for one in requests]


def test_right_and_wrong_draft_tokens_leave_the_answer_as_it_is(native: LLM) -> None:
    prompt = native.tokenizer.encode("It was")
    asked = [params(seed=i, max_tokens=60) for i in range(4)]
    answers = run(native.engine, prompt, asked)
    config = SpeculationConfig(kind="ngram", max_draft_tokens=5, is_adaptive=False)
    speculator = Speculator(KnowingProposer(answers), config)
    engine = Engine(native.engine.executor, native.tokenizer, None, speculator)
    assert run(engine, prompt, asked) == answers
    assert 0 < sum(speculator.stats.num_accepted) < sum(speculator.stats.num_proposed)
    engine.grammars.close()


def test_text_without_a_choice_takes_fewer_steps_and_the_same_tokens(
    native: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = Grammar.choice(["The quick brown fox jumps over the lazy dog."] * 2)
    asked = [params(long), params(SCHEMA, seed=7), params(SCHEMA, seed=8, stop=('"tags"',))]
    asked += [params(long, max_tokens=5), params(None, seed=6, max_tokens=40)]
    num_steps = 0
    step = native.engine.executor.step

    def counted(slices: list[SequenceSlice]) -> npt.NDArray[np.float32]:
        nonlocal num_steps
        num_steps += 1
        return step(slices)

    monkeypatch.setattr(native.engine.executor, "step", counted)
    fast = [facts(native.generate("It was", one)[0]) for one in asked]
    num_fast, num_steps = num_steps, 0
    assert [facts(one) for one in native.generate(["It was"] * 5, asked)] == fast
    num_steps = 0
    monkeypatch.setattr(DrawLimits, "draft_forced", lambda *_: False)
    assert [facts(native.generate("It was", one)[0]) for one in asked] == fast
    assert num_fast < 0.8 * num_steps


def test_preempted_answers_go_on_in_their_grammar(native: LLM) -> None:
    asked = [params(seed=i, max_tokens=60) for i in range(6)]
    expected = native.generate(["It was"] * 6, asked)
    tight = LLM(None, num_pages=10, num_threads=1, config=ScheduleConfig(max_running=6))
    assert [facts(one) for one in tight.generate(["It was"] * 6, asked)] == list(
        map(facts, expected)
    )
    tight.engine.grammars.close()


def test_min_tokens_lets_an_answer_grow_where_the_grammar_may_go_on(native: LLM) -> None:
    digits = Grammar(kind="regex", text="[0-9]+")
    (one,) = native.generate("It was", params(digits, min_tokens=30, max_tokens=60))
    assert len(one.token_ids) > 30
    assert one.text.isdigit()


def test_a_stop_string_ends_an_answer_inside_its_grammar(native: LLM) -> None:
    (one,) = native.generate("It was", params(stop=('"age"',)))
    assert one.finish_reason == "stop"
    assert one.text.startswith("{")
    assert '"age"' not in one.text


def test_settings_that_leave_nothing_end_their_own_request(native: LLM) -> None:
    asked = [params(allowed_token_ids=(5,)), params(None, max_tokens=5)]
    failed, other = native.generate(["It was"] * 2, asked)
    assert failed.finish_reason == "error"
    assert "allow no token" in str(failed.error)
    assert other.finish_reason == "length"


def test_a_bad_grammar_is_refused_before_anything_is_computed(native: LLM) -> None:
    bad = params(Grammar.json_schema({"type": "array", "uniqueItems": True}))
    with pytest.raises(GrammarError, match="uniqueItems"):
        native.generate(["It was"] * 2, [params(), bad])
    assert not native.engine.has_work


def test_an_async_llm_compiles_beside_its_loop(native: LLM) -> None:
    async def run() -> None:
        async with AsyncLLM(native) as served:
            wanted = params(Grammar.choice(["one", "two"]), max_tokens=9)
            answers = await asyncio.gather(*(served.generate("It was", wanted) for _ in range(3)))
            assert {one.text for (one,) in answers} <= {"one", "two"}
            pieces = [piece.text async for piece in served.stream("It was", wanted)]
            assert "".join(pieces) == answers[0][0].text
            with pytest.raises(GrammarError, match="uniqueItems"):
                await served.generate("It was", params(Grammar.json_schema({"uniqueItems": True})))

    asyncio.run(run())


KEYS = st.sampled_from(["a", "b", "c"])
LEAVES = st.one_of(
    st.just({"type": "null"}),
    st.just({"type": "boolean"}),
    st.builds(
        lambda low, size: {"type": "integer", "minimum": low, "maximum": low + size},
        st.integers(-50, 50),
        st.integers(0, 30),
    ),
    st.builds(lambda most: {"type": "string", "maxLength": most}, st.integers(0, 5)),
    st.lists(st.sampled_from(["x", "y", 3, None, True]), min_size=1, unique_by=repr).map(
        lambda values: {"enum": values}
    ),
    st.just({"type": "string", "pattern": "^[ab]{1,3}$"}),
)
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(
            lambda one, most: {"type": "array", "items": one, "maxItems": most},
            inner,
            st.integers(0, 2),
        ),
        st.builds(
            lambda parts: {
                "type": "object",
                "properties": parts,
                "required": sorted(parts),
                "additionalProperties": False,
            },
            st.dictionaries(KEYS, inner, max_size=2),
        ),
        st.lists(inner, min_size=1, max_size=2).map(lambda options: {"anyOf": options}),
    ),
    max_leaves=4,
)


@settings(max_examples=25, deadline=None)
@given(SCHEMAS, st.integers(0, 1000))
def test_what_ends_under_a_schema_is_valid_under_it(
    native: LLM, schema: dict[str, object], seed: int
) -> None:
    wanted = params(Grammar.json_schema(schema), seed=seed, max_tokens=120)
    (one,) = native.generate("It was", wanted)
    assert one.error is None
    if one.finish_reason == "stop":
        jsonschema.validate(json.loads(one.text), schema)


def test_log_probabilities_are_those_of_the_model(native: LLM) -> None:
    (one,) = native.generate("It was", params(max_tokens=20))
    scored = native.score([(one.prompt_token_ids, one.token_ids)])
    assert scored[0].logprob == pytest.approx(sum(x.chosen.logprob for x in one.logprobs), abs=1e-3)


def test_replaced_params_keep_their_grammar(native: LLM) -> None:
    wanted = replace(params(), seed=1)
    assert wanted.grammar is SCHEMA
    assert wanted.choice(2).grammar is SCHEMA


def test_the_end_of_the_grammar_is_the_end_of_the_answer(native: LLM) -> None:
    yes = Grammar.choice(["yes"])
    several: list[dict[str, object]] = [
        {"ignore_eos": True},
        {"min_tokens": 50},
        {"ignore_eos": True, "min_tokens": 9},
    ]
    for options in several:
        (one,) = native.generate("It was", params(yes, **options))
        assert (one.text, one.finish_reason) == ("yes", "stop")


def test_a_filter_and_a_grammar_hold_together(native: LLM) -> None:
    def no_seven(generated: list[int]) -> list[int]:
        texts = native.tokenizer
        return [i for i in range(texts.vocab_size) if "7" not in texts.decode([i])]

    digits = Grammar(kind="regex", text="[5-9]{1,12}")
    (one,) = native.generate("It was", params(digits, token_filter=no_seven, max_tokens=14))
    assert re.fullmatch("[5689]+", one.text)
