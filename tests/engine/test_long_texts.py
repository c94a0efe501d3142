"""Models that turn long texts by other frequencies (longrope): a text that grows long is computed
anew, as Transformers does it, whatever runs beside it."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from fakes.knowing_proposer import KnowingProposer
from paredown.engine.engine import Engine
from paredown.engine.request import Request
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.engine.speculate import draft_model
from paredown.engine.speculate.draft_model import DraftModelProposer
from paredown.engine.speculate.speculation_config import SpeculationConfig
from paredown.engine.speculate.speculator import Speculator
from paredown.executors.load import load_executor
from paredown.executors.protocol import LoadedExecutor, SequenceSlice
from paredown.executors.run_options import ExecutorName, RunOptions
from paredown.models.checkpoint import Checkpoint

SWITCH = 40
CONFIG: dict[str, Any] = {
    "model_type": "phi3",
    "vocab_size": 120,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "original_max_position_embeddings": SWITCH,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "rope_parameters": {
        "rope_type": "longrope",
        "rope_theta": 10_000.0,
        "short_factor": [1.0] * 8,
        "long_factor": [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 64.0],
    },
}
PROMPTS = [list(range(5, 5 + length)) for length in (38, 33, 39, 40, 41, 70, 5)]
MAX_TOKENS = 20


class Ids:
    """A tokenizer of numbers, none of which ends a text."""

    eos_token_ids = frozenset[int]()

    def decode(self, token_ids: list[int], /) -> str:
        return "".join(f" {one}" for one in token_ids)


@pytest.fixture(scope="module")
def theirs() -> Any:
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(**copy.deepcopy(CONFIG)), attn_implementation="eager"
    ).eval()
    with torch.no_grad():
        for values in model.parameters():
            values.normal_(0, 0.15) if values.ndim > 1 else values.normal_(1, 0.5)
    return model


@pytest.fixture(scope="module")
def folder(theirs: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("longrope")
    theirs.save_pretrained(path)
    return path


@pytest.fixture(scope="module", params=["native", "torch"])
def executor(folder: Path, request: pytest.FixtureRequest) -> LoadedExecutor:
    name: ExecutorName = request.param
    options = RunOptions(executor=name, num_pages=60, activations="fp32", kv_dtype="fp32")
    return load_executor(Checkpoint.open(folder), options)


@pytest.fixture(scope="module")
def expected(theirs: Any) -> list[list[int]]:
    """The best token after each text, every time computed from its first token on."""
    answers = []
    for prompt in PROMPTS:
        ids = list(prompt)
        for _ in range(MAX_TOKENS):
            with torch.no_grad():
                ids.append(int(theirs(torch.tensor([ids])).logits[0, -1].argmax()))
        answers.append(ids[len(prompt) :])
    return answers


def answers(
    executor: LoadedExecutor,
    prompts: list[list[int]],
    *,
    num_step_tokens: int = 4096,
    prefix_cache: bool = True,
    speculator: Speculator | None = None,
    passes: int = 1,
) -> list[list[int]]:
    config = ScheduleConfig(max_step_tokens=num_step_tokens, prefix_cache=prefix_cache)
    engine = Engine(executor, Ids(), config, speculator)
    params = SamplingParams(max_tokens=MAX_TOKENS, temperature=0)
    for _ in range(passes):
        requests = [engine.submit(prompt, params) for prompt in prompts]
        run_to_end(engine)
    return [one.token_ids[one.num_prompt_tokens :] for one in requests]


def run_to_end(engine: Engine) -> list[Request]:
    ended = []
    while engine.has_work:
        for output in engine.step():
            assert output.error is None
            if output.finish_reason is not None:
                ended.append(output.request)
        engine.check_integrity()
    return ended


def test_logits_are_those_of_transformers(executor: LoadedExecutor, theirs: Any) -> None:
    for length in (10, SWITCH, SWITCH + 1, 100):
        ids = list(range(length))
        part = SequenceSlice(ids, 0, list(range(10)), length)
        with torch.no_grad():
            wanted = theirs(torch.tensor([ids])).logits[0]
        torch.testing.assert_close(
            torch.from_numpy(executor.step([part])), wanted, rtol=2e-4, atol=2e-4
        )


def test_answers_are_those_of_texts_computed_anew(
    executor: LoadedExecutor, expected: list[list[int]]
) -> None:
    assert answers(executor, PROMPTS, prefix_cache=False) == expected


def test_the_switch_matters(theirs: Any) -> None:
    """Transformers' logits of a long text are others where it is turned as a short one."""
    prompt = torch.tensor([PROMPTS[5]])
    short = copy.deepcopy(CONFIG)
    short["rope_parameters"]["long_factor"] = [1.0] * 8
    other = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(**short), attn_implementation="eager"
    ).eval()
    other.load_state_dict(theirs.state_dict())
    with torch.no_grad():
        assert (other(prompt).logits - theirs(prompt).logits).abs().max() > 0.1


@pytest.mark.parametrize("num_step_tokens", [7, 64, 4096])
def test_nothing_beside_changes_an_answer(
    executor: LoadedExecutor, expected: list[list[int]], num_step_tokens: int
) -> None:
    together = answers(executor, PROMPTS, num_step_tokens=num_step_tokens, passes=2)
    assert together == expected
    for prompt, answer in zip(PROMPTS[:3], expected, strict=False):
        assert answers(executor, [prompt], num_step_tokens=num_step_tokens) == [answer]


def test_drafts_do_not_cross_the_switch(
    executor: LoadedExecutor, expected: list[list[int]]
) -> None:
    known = [prompt + answer for prompt, answer in zip(PROMPTS, expected, strict=True)]
    config = SpeculationConfig(kind="ngram", max_draft_tokens=6, is_adaptive=False)
    speculator = Speculator(KnowingProposer(known), config)
    assert answers(executor, PROMPTS, speculator=speculator) == expected
    assert sum(speculator.stats.num_accepted) > 0


@pytest.mark.parametrize("num_piece_tokens", [16, 512])
def test_a_draft_model_computes_long_texts_anew(
    executor: LoadedExecutor,
    folder: Path,
    expected: list[list[int]],
    num_piece_tokens: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The model as its own draft model: whatever the length, all that it proposes comes true."""
    monkeypatch.setattr(draft_model, "MAX_PREFILL_TOKENS", num_piece_tokens)
    name: ExecutorName = "native" if "native" in type(executor).__module__ else "torch"
    options = RunOptions(executor=name, num_pages=60, activations="fp32", kv_dtype="fp32")
    drafting = load_executor(Checkpoint.open(folder), options)
    config = SpeculationConfig(kind="ngram", max_draft_tokens=5, is_adaptive=False)
    speculator = Speculator(DraftModelProposer(drafting), config)
    assert answers(executor, PROMPTS, speculator=speculator) == expected
    stats = speculator.stats
    assert stats.failure is None
    assert stats.num_tested == sum(stats.num_accepted) > 10
