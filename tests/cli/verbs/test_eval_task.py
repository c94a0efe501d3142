"""`paredown eval --task`: one column for each model, and bad input told before any answer."""

import json
from pathlib import Path

import pytest
import torch

from fakes.byte_tokenizer import write_byte_tokenizer
from fakes.tiny_models import make_model
from paredown.cli.main import main
from paredown.cli.verbs import eval_task


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    for name, seed in (("model", 0), ("other", 1)):
        make_model("gpt2", torch.bfloat16, seed, n_positions=512).save_pretrained(tmp_path / name)
        write_byte_tokenizer(tmp_path / name)
    task = {"instruction": "Add.", "instances": [{"input": "1 2", "output": "3"}]}
    (tmp_path / "tasks.jsonl").write_text(f"{json.dumps(task)}\n" * 3)
    monkeypatch.setattr(eval_task, "load_rouge", lambda: lambda expected, answer: 0.25)
    return [
        *("eval", str(tmp_path / "model"), "--task", "selfinst", "--answer-tokens", "8"),
        *("--text", str(tmp_path / "tasks.jsonl"), "--threads", "1"),
    ]


def test_it_prints_a_column_for_each_model(words, tmp_path, capsys) -> None:
    assert main([*words, "--reference", str(tmp_path / "other")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for part in ("ROUGE-L", "25.00%", "model", "reference", "plain prompt"):
        assert part in shown


def test_json_has_both(words, tmp_path, capsys) -> None:
    assert main([*words, "--json", "--limit", "2"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["task"] == "selfinst"
    assert result["reference"] is None
    assert (result["model"]["rouge_l"], result["model"]["num_instructions"]) == (0.25, 2)


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        (["--task", "chess"], "invalid choice"),
        (["--text", "no/such.jsonl"], "cannot be read"),
        (["--limit", "0"], "--limit"),
        (["--answer-tokens", "100000"], "--answer-tokens"),
        (["--answer-tokens", "0"], "--answer-tokens"),
    ],
)
def test_bad_input_is_told(words, capsys, extra, says) -> None:
    assert main([*words, *extra]) == 2
    assert says in capsys.readouterr().err
