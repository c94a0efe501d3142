"""--attention-sinks: texts longer than the context, and what is said of it."""

import json

import pytest
import torch

from fakes.byte_tokenizer import write_byte_tokenizer
from fakes.tiny_models import MAX_POSITIONS, make_model
from paredown.cli.main import main

SINKS = ["--attention-sinks", "4", "--attention-window", "60"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("sinks")
    make_model("llama", torch.bfloat16, 0).save_pretrained(path)
    write_byte_tokenizer(path)
    return str(path)


def generate(capsys, *words):
    code = main(["generate", "a long text " * 20, "--threads", "1", "--seed", "1", *words])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_a_text_beyond_the_context_is_answered(capsys, folder):
    words = ["--model", folder, "--max-tokens", "200", "--ignore-eos", "--json"]
    code, out, err = generate(capsys, *words, *SINKS)
    assert code == 0
    (found,) = json.loads(out)["completions"]
    assert found["num_prompt_tokens"] > MAX_POSITIONS
    assert (len(found["token_ids"]), found["finish_reason"]) == (200, "length")
    assert "every token sees the first 4 and the last 60 tokens" in err
    code, out, _ = generate(capsys, *words)
    assert code == 2
    assert "context" in json.loads(out)["error"]["what"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--attention-window", "60"], "a window was given without attention sinks"),
        (["--attention-sinks", "0"], "the number of attention sinks is out of range"),
        (["--attention-sinks", "4", "--attention-window", "0"], "the window beside"),
        (["--attention-sinks", "4"], "Use a window of at most 124 tokens"),
    ],
)
def test_options_that_make_no_sense_are_refused(capsys, folder, words, message):
    code, _, err = generate(capsys, "--model", folder, *words)
    assert code == 2
    assert message in err


def test_a_model_of_learned_positions_is_refused(capsys, tmp_path):
    make_model("gpt2", torch.bfloat16, 0).save_pretrained(tmp_path)
    write_byte_tokenizer(tmp_path)
    code, _, err = generate(capsys, "--model", str(tmp_path), *SINKS)
    assert code == 2
    assert "attention sinks need rotary positions" in err
