"""T5 through the engine: Transformers' greedy tokens, equal bits in any batch, and refusals."""

import json
from pathlib import Path

import pytest
import torch

from fakes.byte_tokenizer import write_byte_tokenizer
from fakes.t5_tokenizer import write_t5_tokenizer
from fakes.tiny_t5 import KINDS, MAX_POSITIONS, VOCAB_SIZE, greedy_t5, make_t5, write_t5
from paredown.engine.encoder import Encoder
from paredown.engine.llm import LLM
from paredown.engine.sampling.beam_search import BeamSearchParams
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.engine.speculate.speculation_config import SpeculationConfig
from paredown.engine.step_budget import choose_step_budget
from paredown.errors import (
    CapacityError,
    CheckpointError,
    ParedownError,
    RequestError,
    UnsupportedError,
)
from paredown.spec.attention_sinks import AttentionSinks

EXECUTORS = ("native", "torch")
LENGTHS = (3, 16, 17, 70, 150)
NUM_TOKENS = 24
GREEDY = SamplingParams(temperature=0, max_tokens=NUM_TOKENS)


def prompts() -> list[list[int]]:
    draw = torch.Generator().manual_seed(3)
    return [torch.randint(2, VOCAB_SIZE, (size,), generator=draw).tolist() for size in LENGTHS]


def open_llm(folder: Path, **options: object) -> LLM:
    fields = {"num_pages": 200, "num_threads": 1, "kv_dtype": "fp32", "activations": "fp32"}
    return LLM(folder, **(fields | options))


@pytest.fixture(scope="module")
def t5(tmp_path_factory: pytest.TempPathFactory):
    """Returns Transformers' model and the folder that it wrote."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("t5")
    theirs = make_t5("gated-untied")
    write_t5(theirs, folder)
    write_byte_tokenizer(folder)
    return theirs, folder


def answers(llm: LLM, texts: list[list[int]]) -> list[list[int]]:
    return [one.token_ids for one in llm.generate(texts, GREEDY)]


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("kind", KINDS)
def test_greedy_tokens_equal_transformers(kind: str, executor: str, tmp_path: Path) -> None:
    theirs = make_t5(kind)
    write_t5(theirs, tmp_path)
    write_byte_tokenizer(tmp_path)
    texts = prompts()
    expected = [greedy_t5(theirs, text, NUM_TOKENS) for text in texts]
    assert answers(open_llm(tmp_path, executor=executor), texts) == expected


@pytest.mark.parametrize(
    ("executor", "kv_dtypes"), [("native", ("bf16", "int8")), ("torch", ("bf16", "fp32"))]
)
def test_answers_have_the_same_bits_alone_and_in_any_batch(
    executor: str, kv_dtypes: tuple[str, ...], t5
) -> None:
    """Also with compressed pages, few of them, and steps too short for a prompt: requests are then
    preempted, and prompts exceed the step's tokens."""
    _, folder = t5
    texts = prompts()
    sampled = SamplingParams(temperature=1.0, seed=7, max_tokens=60, ignore_eos=True, logprobs=2)

    def run(llm: LLM, groups: list[list[list[int]]]) -> list[tuple[list[int], list[float]]]:
        done = [one for group in groups for one in llm.generate(group, sampled)]
        return [(one.token_ids, [row.chosen.logprob for row in one.logprobs]) for one in done]

    for kv_dtype in kv_dtypes:
        options = {"executor": executor, "kv_dtype": kv_dtype}
        alone = run(open_llm(folder, **options), [[text] for text in texts])
        small = open_llm(
            folder,
            **options,
            num_pages=16,
            num_threads=2 if executor == "native" else 1,
            config=ScheduleConfig(max_step_tokens=20, max_running=4),
        )
        assert run(small, [texts]) == alone
        assert small.engine.scheduler.num_preemptions
        assert small.engine.scheduler.pool.num_free == 16


@pytest.mark.parametrize("executor", EXECUTORS)
def test_several_answers_share_the_pages_of_a_prompt(executor: str, t5) -> None:
    _, folder = t5
    llm, text = open_llm(folder, executor=executor), prompts()[4]
    params = SamplingParams(temperature=1.0, seed=3, n=3, max_tokens=9)
    alone = [
        llm.generate([text], SamplingParams(temperature=1.0, seed=3 + i, max_tokens=9))[0].token_ids
        for i in range(3)
    ]
    assert [one.token_ids for one in llm.generate([text], params)] == alone
    assert llm.engine.scheduler.pool.num_free == 200
    llm.engine.check_integrity()


@pytest.mark.parametrize("executor", EXECUTORS)
def test_beams_begin_with_what_is_greedy(executor: str, t5) -> None:
    theirs, folder = t5
    llm, text = open_llm(folder, executor=executor), prompts()[3]
    best = llm.beam_search(text, BeamSearchParams(num_beams=1, max_tokens=8))[0]
    assert list(best.token_ids) == greedy_t5(theirs, text, 8)
    assert llm.engine.scheduler.pool.num_free == 200


@pytest.mark.parametrize("executor", EXECUTORS)
def test_an_aborted_request_gives_all_its_pages_back(executor: str, t5) -> None:
    """The pages of its prompt are free too, and its neighbour goes on with the same tokens."""
    _, folder = t5
    texts = prompts()[3:]
    alone = answers(open_llm(folder, executor=executor), texts[1:])[0]
    llm = open_llm(folder, executor=executor, num_pages=40)
    gone, stays = (llm.engine.submit(text, GREEDY) for text in texts)
    outputs = llm.engine.step()
    assert llm.engine.cancel(gone.id)
    llm.engine.check_integrity()
    while llm.engine.has_work:
        outputs += llm.engine.step()
    found = [one for out in outputs if out.request is stays for one in out.token_ids]
    assert found == alone
    assert llm.engine.scheduler.pool.num_free == 40


@pytest.mark.parametrize("executor", EXECUTORS)
def test_what_can_never_be_answered_is_refused(executor: str, t5) -> None:
    _, folder = t5
    llm = open_llm(folder, executor=executor, num_pages=8)
    with pytest.raises(RequestError, match="the prompt is empty"):
        llm.generate([[]], GREEDY)
    with pytest.raises(RequestError, match=f"{MAX_POSITIONS + 1} prompt tokens, a context of"):
        llm.generate([[5] * (MAX_POSITIONS + 1)], GREEDY)
    with pytest.raises(CapacityError, match="one page of them for the answer"):
        llm.generate([[5] * 113], GREEDY)
    with pytest.raises(RequestError, match="no log-probabilities"):
        llm.generate([[5]], SamplingParams(prompt_logprobs=0))
    assert (
        len(llm.generate([[5] * 112], SamplingParams(max_tokens=40, ignore_eos=True))[0].token_ids)
        == 15
    )
    assert not llm.engine.has_work


def test_speculation_and_attention_sinks_are_refused(t5) -> None:
    _, folder = t5
    with pytest.raises(ParedownError, match="neither write nor check draft tokens"):
        open_llm(folder, speculation=SpeculationConfig(kind="ngram"))
    with pytest.raises(ParedownError, match="attention sinks need rotary positions"):
        open_llm(folder, sinks=AttentionSinks(num_sink_tokens=4, window=20))
    with pytest.raises(ParedownError, match="no log-probabilities"):
        open_llm(folder).score([([5], [6])])


def test_the_budget_of_a_step_is_measured_with_a_prompt_in_it(t5) -> None:
    """`executor.step` refuses slices that read nothing across."""
    _, folder = t5
    executor = open_llm(folder).engine.executor
    budget = choose_step_budget(executor, 3600.0)
    assert budget.max_step_tokens == MAX_POSITIONS
    assert all(seconds > 0 for seconds in budget.seconds.values())


def test_an_encoder_decoder_is_no_encoder(t5) -> None:
    with pytest.raises(UnsupportedError, match="makes no vectors or scores"):
        Encoder(t5[1])


def test_beams_lose_the_space_that_answers_lose(tmp_path: Path) -> None:
    write_t5(make_t5("gated-untied"), tmp_path)
    write_t5_tokenizer(tmp_path, VOCAB_SIZE)
    params = BeamSearchParams(num_beams=2, max_tokens=6)
    (first, *_), *_ = (one.token_ids for one in open_llm(tmp_path).beam_search([5, 6, 1], params))
    written = json.loads((tmp_path / "tokenizer.json").read_text())
    written["model"]["vocab"][first][0] = "▁word"
    (tmp_path / "tokenizer.json").write_text(json.dumps(written))
    llm = open_llm(tmp_path)
    best = llm.beam_search([5, 6, 1], params)[0]
    assert best.text == llm.tokenizer.decode(best.token_ids)
    assert best.text.startswith("word")


def test_the_first_token_of_the_decoder_must_be_known(t5, tmp_path: Path) -> None:
    theirs, _ = t5
    write_t5(theirs, tmp_path)
    write_byte_tokenizer(tmp_path)
    for name in ("config.json", "generation_config.json"):
        fields = json.loads((tmp_path / name).read_text())
        left = {
            one: fields[one]
            for one in fields
            if not one.endswith(("start_token_id", "pad_token_id"))
        }
        (tmp_path / name).write_text(json.dumps(left))
    with pytest.raises(CheckpointError, match="with which token the decoder begins"):
        open_llm(tmp_path)
