"""Instructions are read whole or refused, asked in the model's own form, and scored one by one."""

import json
from pathlib import Path

import pytest
import torch

from drivers.shared_data import data_folder, needs_data
from fakes.small_tokenizers import NAMES, byte_level, write_folder
from fakes.tiny_models import make_model
from paredown.engine.llm import LLM
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.errors import CheckpointError, ConfigError
from paredown.evaluate.tasks.self_instruct import (
    DATA_FILE,
    Instruction,
    encoded_instruction,
    measure_self_instruct,
    read_instructions,
)
from paredown.models.text.tokenizer import Tokenizer
from references.rouge_l import rouge_l

TEMPLATE = "{% for m in messages %}[{{ m.content }}]{% endfor %}"
GOOD = {"instruction": "Add.", "instances": [{"input": "1 2", "output": "3"}]}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    write_folder(folder, byte_level(), {**NAMES, "chat_template": TEMPLATE})
    make_model("llama", torch.bfloat16, 4).save_pretrained(folder)
    return folder


def test_answers_are_greedy_and_scored_beside_what_is_expected(model: Path) -> None:
    llm = LLM(model, num_threads=1, num_pages=16)
    asked = [Instruction(prompt=f"Say {number}.", expected="a b c") for number in range(3)]
    asked.append(Instruction(prompt="x" * 200, expected="a"))
    answers = llm.generate(
        [llm.tokenizer.encode(f"[{one.prompt}]") for one in asked[:3]],
        SamplingParams(temperature=0.0, max_tokens=10),
    )
    seen: list[tuple[str, str]] = []

    def rouge(expected: str, answer: str) -> float:
        seen.append((expected, answer))
        return rouge_l(expected, answer) + len(seen)

    counts: list[tuple[int, int]] = []
    found = measure_self_instruct(
        llm, asked, rouge, answer_tokens=10, on_progress=lambda *now: counts.append(now)
    )
    assert seen == [("a b c", answer.text) for answer in answers]
    scores = [rouge_l("a b c", answer.text) + number for number, answer in enumerate(answers, 1)]
    assert found.rouge_l == pytest.approx(sum(scores) / 3)
    assert (found.num_instructions, found.num_left_out, found.asked) == (3, 1, "chat")
    lengths = [len(answer.token_ids) for answer in answers]
    assert found.mean_answer_tokens == pytest.approx(sum(lengths) / 3)
    assert found.ended == sum(answer.finish_reason == "stop" for answer in answers) / 3
    assert counts == [(3, 3)]


def test_a_context_that_holds_nothing_is_told(model: Path) -> None:
    llm = LLM(model, num_threads=1, num_pages=16)
    with pytest.raises(ConfigError, match="holds none"):
        measure_self_instruct(
            llm, [Instruction(prompt="x" * 300, expected="a")], rouge_l, answer_tokens=10
        )


def test_a_model_without_a_template_is_asked_plainly(tmp_path: Path) -> None:
    tokenizer = Tokenizer.open(write_folder(tmp_path, byte_level(bos=True)))
    ids = encoded_instruction(tokenizer, "Add.")
    text = tokenizer.decode(ids, False)
    assert text.startswith("<s>Below is an instruction")
    assert text.endswith("### Instruction:\nAdd.\n\n### Response:\n")


def test_an_instruction_is_asked_with_its_input(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    bare = {"instruction": "Sing.", "instances": [{"input": "", "output": "La."}]}
    path.write_text(f"{json.dumps(GOOD)}\n\n{json.dumps(bare)}\n")
    assert read_instructions(path) == [
        Instruction(prompt="Add.\n\n1 2", expected="3"),
        Instruction(prompt="Sing.", expected="La."),
    ]
    assert len(read_instructions(path, 1)) == 1


@pytest.mark.parametrize(
    "line",
    ["{", "[]", "{}", '{"instruction": 3, "instances": [{"input": "", "output": ""}]}'],
)
def test_what_holds_no_instructions_is_refused(line: str, tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text(f"{json.dumps(GOOD)}\n{line}\n")
    with pytest.raises(ConfigError, match="line 2"):
        read_instructions(path)


def test_a_file_that_is_empty_or_not_there_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(ConfigError, match="empty file"):
        read_instructions(tmp_path / "empty")
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_instructions(tmp_path / "gone")
    with pytest.raises(ConfigError, match="--limit"):
        read_instructions(tmp_path / "empty", 0)
    monkeypatch.setenv("PAREDOWN_DATA", str(tmp_path))
    with pytest.raises(ConfigError, match="not there"):
        read_instructions(None)
    monkeypatch.delenv("PAREDOWN_DATA")
    with pytest.raises(ConfigError, match="PAREDOWN_DATA is not set"):
        read_instructions(None)


@needs_data("tasks/self-instruct")
def test_all_252_are_read() -> None:
    folder = data_folder("tasks/self-instruct")
    assert folder is not None
    assert len(read_instructions(folder / DATA_FILE.name)) == 252
    assert len(read_instructions(None)) == 252
