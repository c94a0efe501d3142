"""--speculate: the same answers, and a line about what it brought."""

import json

import pytest

from paredown.cli.main import main

PROMPT = "It was the best of times, it was the worst of times, it was"
WORDS = ["generate", PROMPT, "--seed", "4", "--max-tokens", "40", "--threads", "1"]


def run(capsys, *words):
    code = main(list(words))
    shown = capsys.readouterr()
    return code, shown.out, shown.err


@pytest.mark.parametrize("temperature", ["0", "0.8"])
def test_every_kind_gives_the_answer_of_none(capsys, temperature):
    words = [*WORDS, "--temperature", temperature]
    _, expected, err = run(capsys, *words)
    assert "speculation" not in err
    for kind in ("ngram", "suffix", "draft"):
        code, out, err = run(capsys, *words, "--speculate", kind)
        assert (code, out) == (0, expected)
        assert "draft tokens accepted" in err


def test_json_holds_the_counts(capsys):
    words = [*WORDS, "--json", "--speculate", "draft", "--max-draft-tokens", "3"]
    code, out, _ = run(capsys, *words, "--draft-model", "draft")
    found = json.loads(out)["speculation"]
    assert code == 0
    assert found["num_tokens"] == 40
    assert 1 <= found["tokens_per_step"] <= 4
    assert len(found["num_proposed"]) <= 3
    assert all(
        accepted <= proposed
        for accepted, proposed in zip(found["num_accepted"], found["num_proposed"], strict=True)
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--draft-model", "draft"], "--draft-model was given without --speculate"),
        (["--max-draft-tokens", "4"], "--max-draft-tokens was given without"),
        (["--speculate", "ngram", "--max-draft-tokens", "0"], "max_draft_tokens is out of range"),
        (["--speculate", "ngram", "--draft-model", "draft"], "draft_model belongs to"),
        (["--speculate", "draft", "--draft-model", "nowhere"], "nowhere"),
    ],
)
def test_options_that_make_no_sense_are_refused(capsys, words, message):
    code, _, err = run(capsys, *WORDS, *words)
    assert code == 2
    assert message in err


def test_bench_measures_with_and_without(capsys):
    code, out, _ = run(
        capsys,
        *("bench", "--rounds", "1", "--threads", "1", "--json", "--speculate", "ngram"),
        *("--batch", "1", "--output-tokens", "4"),
    )
    assert code == 0
    gains = json.loads(out)["speculation"]
    assert [one["name"] for one in gains] == ["greedy", "temperature 0.8"]
    assert all(one["gain"] > 0 and one["num_different"] == 0 for one in gains)
