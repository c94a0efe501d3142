"""`generate` and `chat` on the packaged model."""

import io
import json

import pytest
import torch

from fakes.t5_tokenizer import write_t5_tokenizer
from fakes.tiny_t5 import VOCAB_SIZE, make_t5, write_t5
from paredown.cli.main import main
from paredown.engine.llm import LLM
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.errors import RequestError

GREEDY = ["--temperature", "0", "--max-tokens", "12"]


@pytest.fixture(scope="module")
def llm():
    return LLM(num_pages=256, num_threads=1)


def generate(capsys, *words):
    code = main(["generate", *words])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_a_stream_prints_what_the_api_answers(capsys, llm):
    params = SamplingParams(temperature=0, max_tokens=12)
    expected = llm.generate("Once upon a time", params)[0]
    code, out, err = generate(capsys, "Once upon a time", *GREEDY)
    assert (code, out) == (0, expected.text + "\n")
    assert err.startswith(f"{len(expected.token_ids)} tokens; the first after ")
    _, out, _ = generate(capsys, "Once upon a time", "--echo", *GREEDY)
    assert out == f"Once upon a time{expected.text}\n"


def test_layers_may_keep_keys_and_values_differently(capsys):
    llm = LLM(num_pages=256, num_threads=1, kv_dtype=["bf16", "bf16", "int4", "int4", "fp8"])
    expected = llm.generate("Once upon a time", SamplingParams(temperature=0, max_tokens=12))[0]
    words = ("--kv-dtype", "int4,first2=bf16,4=fp8", "--threads", "2", "--decode-threads", "1")
    code, out, _ = generate(capsys, "Once upon a time", *GREEDY, *words)
    assert (code, out) == (0, expected.text + "\n")
    code, _, err = generate(capsys, "Once upon a time", *GREEDY, "--kv-dtype", "int4,last6=bf16")
    assert code == 2
    assert "no such layers" in err
    code, _, err = generate(capsys, "Once upon a time", *GREEDY, "--decode-threads", "0")
    assert code == 2
    assert "number of threads" in err


def test_a_batch_gives_what_each_prompt_gives_alone(capsys, llm, tmp_path):
    prompts = ["The old house", "He said", "It was a dark and stormy night; the rain fell"]
    path = tmp_path / "prompts.txt"
    path.write_text("\n\n".join(prompts))
    code, out, _ = generate(capsys, "--prompts-file", str(path), "--json", "--seed", "3")
    assert code == 0
    result = json.loads(out)
    params = SamplingParams(temperature=0.8, top_k=40, seed=3)
    for prompt, one in zip(prompts, result["completions"], strict=True):
        alone = llm.generate(prompt, params)[0]
        assert (one["prompt"], one["text"]) == (prompt, alone.text)
        assert one["token_ids"] == alone.token_ids
    assert result["num_tokens"] == sum(len(one["token_ids"]) for one in result["completions"])
    code, out, _ = generate(capsys, "--prompts-file", str(path), "--seed", "3")
    assert out.count("\n---\n") == 2


def test_stdin_is_the_prompt_when_there_is_none(capsys, monkeypatch, llm):
    expected = llm.generate("He said", SamplingParams(temperature=0, max_tokens=12))[0].text
    for words in ([], ["-"]):
        monkeypatch.setattr("sys.stdin", io.StringIO("He said\n"))
        assert generate(capsys, *words, *GREEDY)[1] == expected + "\n"


BAD = [
    (["x", "--temperature", "-1"], "temperature"),
    (["x", "--top-p", "nan"], "top_p"),
    (["x", "--max-tokens", "0"], "max_tokens"),
    (["x", "--prompts-file", "also"], "a prompt and a file"),
    (["--prompts-file", "no/such/file"], "cannot be read"),
    (["--prompts-file", "/dev/zero"], "too long"),
    (["word " * 5000], "a context of"),
]


@pytest.mark.parametrize(("words", "says"), BAD, ids=lambda value: str(value)[:30])
def test_bad_input_exits_with_2_and_prints_nothing_else(capsys, words, says):
    code, out, err = generate(capsys, *words)
    assert (code, out) == (2, "")
    assert says in err


def test_chat_keeps_its_history(capsys, monkeypatch, llm):
    monkeypatch.setattr("sys.stdin", io.StringIO("Hello.\n\nAnd then?\n"))
    assert main(["chat", "--json", "--system", "Be kind.", *GREEDY]) == 0
    messages = json.loads(capsys.readouterr().out)["messages"]
    roles = ["system", "user", "assistant", "user", "assistant"]
    assert [message["role"] for message in messages] == roles
    for length in (2, 4):
        pieces = llm.stream_chat(messages[:length], SamplingParams(temperature=0, max_tokens=12))
        assert "".join(piece.text for piece in pieces) == messages[length]["content"]


def test_chat_forgets_the_oldest_turns_when_they_no_longer_fit(capsys, monkeypatch):
    turn = "word " * 900
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{turn}\n{turn}\n{turn}\n"))
    assert main(["chat", "--temperature", "0", "--max-tokens", "4"]) == 0
    assert "no longer fits" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", io.StringIO("word " * 5000 + "\n"))
    assert main(["chat"]) == 2


def test_chat_with_an_encoder_decoder_answers_each_message_by_itself(capsys, monkeypatch, tmp_path):
    write_t5(make_t5("gated-untied"), tmp_path)
    write_t5_tokenizer(tmp_path, VOCAB_SIZE)
    monkeypatch.setattr("sys.stdin", io.StringIO("first\nsecond\n"))
    words = ["--system", "Be kind.", "--temperature", "0", "--max-tokens", "8", "--threads", "1"]
    assert main(["chat", str(tmp_path), "--json", *words]) == 0
    out, err = capsys.readouterr()
    assert "answers each message by itself" in err
    llm = LLM(tmp_path, num_threads=1, num_pages=60)
    messages = json.loads(out)["messages"]
    for question, answer in (messages[1:3], messages[3:5]):
        prompt = f"Be kind.\n\n{question['content']}"
        (alone,) = llm.generate([prompt], SamplingParams(temperature=0, max_tokens=8))
        assert alone.text == answer["content"]


def test_the_api_takes_tokens_and_leaves_nothing_behind(llm):
    token_ids = llm.tokenizer.encode("He said")
    params = SamplingParams(temperature=0, max_tokens=5)
    one, two = llm.generate([token_ids, token_ids], params)
    assert one.token_ids == two.token_ids == llm.generate(token_ids, params)[0].token_ids
    pieces = llm.stream("He said", params)
    next(pieces)
    with pytest.raises(RequestError, match="under way"):
        llm.generate("He said", params)
    pieces.close()
    assert not llm.engine.has_work
    llm.engine.check_integrity()
    assert llm.generate([], params) == []
    with pytest.raises(RequestError, match="0 to 8191"):
        llm.generate([token_ids, [8192]], params)
    assert not llm.engine.has_work


def test_the_torch_executor_writes_what_the_native_one_does(capsys):
    options = {"kv_dtype": "fp32", "activations": "fp32", "num_pages": 64, "num_threads": 1}
    params = SamplingParams(temperature=0, max_tokens=40)
    expected = LLM(**options).generate("Once upon a time", params)[0].text
    words = ["--temperature", "0", "--max-tokens", "40", "--kv-dtype", "fp32", "--threads", "1"]
    code, out, _ = generate(capsys, "Once upon a time", *words, "--executor", "torch")
    assert (code, out) == (0, expected + "\n")


def test_inputs_are_rounded_as_asked(capsys):
    params = SamplingParams(temperature=0, max_tokens=20)
    expected = LLM(activations="fp32", num_threads=1).generate("Once upon a time", params)[0].text
    words = ["--temperature", "0", "--max-tokens", "20", "--threads", "1"]
    code, out, _ = generate(capsys, "Once upon a time", *words, "--activations", "fp32")
    assert (code, out) == (0, expected + "\n")
    code, _, err = generate(capsys, "Once upon a time", *words, "--activations", "int8_row")
    assert code == 2
    assert "are floats" in err
    assert "Leave --activations out" in err


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a GPU")
def test_a_gpu_that_is_not_there_is_told(capsys):
    code, _, err = generate(capsys, "Once", *GREEDY, "--device", "cuda")
    assert code == 2
    assert "PyTorch sees no GPU" in err
    code, _, err = generate(capsys, "Once", *GREEDY, "--executor", "native", "--device", "cuda")
    assert code == 2
    assert "on a CPU alone" in err


def test_a_prompt_that_begins_with_bos_itself_is_noted(capsys):
    code, _, err = generate(capsys, "<|endoftext|>Once upon a time", *GREEDY)
    assert code == 0
    assert "note: 1 of the prompts begin with the token" in err
    code, _, err = generate(capsys, "Once upon a <|endoftext|>time", *GREEDY)
    assert "note:" not in err


def test_an_encoder_decoder_does_not_continue_what_it_echoes(capsys, tmp_path):
    write_t5(make_t5("gated-untied"), tmp_path)
    write_t5_tokenizer(tmp_path, VOCAB_SIZE)
    code, out, err = generate(capsys, "hello", "--model", str(tmp_path), "--echo", "--threads", "1")
    assert code == 2
    assert out == ""
    assert "answers a prompt and does not continue it" in err
