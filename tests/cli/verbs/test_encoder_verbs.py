"""`serve`, `bench` and `inspect` on the folder of an encoder."""

import json
import subprocess
import sys

import httpx
import pytest

from fakes.encoder_folders import write_bert, write_decoder
from paredown import LLM
from paredown.cli.main import main
from paredown.errors import UnsupportedError
from paredown.executors.load import load_encoder
from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import ASSETS

EXECUTOR = ("--executor", "native")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("encoder") / "tiny"
    path.mkdir()
    write_bert(path)
    return path


def test_a_folder_of_an_encoder_is_served_by_itself(folder):
    command = [sys.executable, "-m", "paredown.cli.main", "serve", str(folder), "--port", "0"]
    command += ["--json", "--threads", "1", *EXECUTOR]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            ready = json.loads(process.stdout.readline())
            assert ready["model"] == "tiny"
            with httpx.Client(base_url=ready["url"], timeout=30) as client:
                body = {"model": "tiny", "input": ["a b", "c"]}
                reply = client.post("/v1/embeddings", json=body)
                assert [len(one["embedding"]) for one in reply.json()["data"]] == [64, 64]
                models = client.get("/v1/models").json()["data"]
                assert models[0]["max_model_len"] == 64
        finally:
            process.terminate()
        assert process.wait(20) == 0
        assert "texts of at most 64 tokens" in process.stderr.read()


def test_speed_is_printed_and_as_json(folder, capsys):
    words = ["bench", str(folder), *EXECUTOR, "--threads", "1", "--rounds", "1", "--batch", "1,2"]
    assert main([*words, "--json"]) == 0
    texts = json.loads(capsys.readouterr().out)["texts"]
    cells = [(one["num_tokens"], one["num_texts"]) for one in texts]
    assert cells == [(16, 1), (16, 2), (64, 1), (64, 2)]
    assert all(one["texts_per_s"] > 0 and one["mfu"] > 0 for one in texts)
    assert main([*words, "--input-tokens", "8"]) == 0
    assert "texts/s" in capsys.readouterr().out


def test_costs_are_printed_and_as_json(folder, capsys):
    assert main(["inspect", str(folder), "--machine", "h100"]) == 0
    printed = capsys.readouterr().out
    assert "encode: 1 x 64 tokens at once" in printed
    assert "logits" not in printed
    assert main(["inspect", str(folder), "--machine", "h100", "--batch", "8", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["texts"] == {"batch": 8, "tokens": 64}


def test_machines_are_planned_for_texts(folder, capsys):
    words = ["plan", str(folder), "--machine", "h100", "--rps", "1e8", "--input-tokens", "32"]
    assert main(words) == 0
    assert "texts/s of 32 tokens" in capsys.readouterr().out
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["options"]
    assert [one["batch"] for one in found] == [64] * len(found)
    for one in found:
        assert one["tokens_per_s"] == pytest.approx(32 * one["texts_per_s"])
        assert one["machines"] == -(-1e8 // one["texts_per_s"])
    assert main([*words, "--p95", "0.000001ms", "--json"]) == 0
    late = json.loads(capsys.readouterr().out)["options"]
    assert {one["machines"] for one in late} == {None}


@pytest.mark.parametrize(
    "words",
    [
        ("plan", "--output-tokens", "8"),
        ("plan", "--input-tokens", "8-16"),
        ("plan", "--input-tokens", "65"),
        ("plan", "--rps", "0"),
        ("simulate",),
        ("chat",),
        ("serve", "--task", "generate"),
        ("serve", "--kv-dtype", "int8"),
        ("serve", "--speculate", "ngram"),
        ("serve", "--max-batch-tokens", "0"),
        ("bench", "--output-tokens", "8"),
        ("bench", "--rate", "2"),
        ("bench", "--input-tokens", "65"),
        ("bench", "--input-tokens", "8-16"),
        ("bench", "--batch", "0"),
        ("inspect", "--context", "8"),
        ("inspect", "--batch", "0"),
    ],
)
def test_what_an_encoder_cannot_do_is_refused(folder, words, capsys):
    verb, *options = words
    machine = ["--machine", "h100"] if verb in ("inspect", "plan", "simulate") else []
    machine += ["--rps", "5"] if verb in ("plan", "simulate") and "--rps" not in options else []
    assert main([verb, str(folder), *options, *machine]) == 2
    assert "saw" in capsys.readouterr().err


def test_generating_with_an_encoder_says_what_it_is_for(folder):
    with pytest.raises(UnsupportedError, match="writes no text"):
        LLM(folder)
    with pytest.raises(UnsupportedError, match="makes no vectors"):
        load_encoder(Checkpoint.open(ASSETS / "default"))


def test_a_decoder_embeds_when_asked(tmp_path, capsys):
    write_decoder(tmp_path)
    (tmp_path / "modules.json").unlink()
    words = ["bench", str(tmp_path), "--task", "embed", *EXECUTOR, "--rounds", "1", "--batch", "1"]
    assert main([*words, "--input-tokens", "8", "--threads", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["texts"][0]["texts_per_s"] > 0
