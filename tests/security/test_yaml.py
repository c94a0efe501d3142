"""S10, K2 and K4: YAML and JSON that anybody may have written are read with limits, and what is
wrong with them is one line of our own."""

import json
import time
from itertools import pairwise
from pathlib import Path

import pytest

from drivers.hostile_text import is_safe
from paredown.cli.main import main
from paredown.compress.recipe_file import parse_recipe, read_recipe
from paredown.compress.recipe_yaml import MAX_VALUES
from paredown.errors import ConfigError, ParedownError
from paredown.evaluate.load.trace_file import MAX_LINE_CHARS, read_trace

LEVELS = "".join(f"  - &{b} [{', '.join(10 * [f'*{a}'])}]\n" for a, b in pairwise("abcdefghi"))
BOMB = f"steps:\n- method: rtn\n  format: int8\n  targets:\n  - &a [x{', x' * 9}]\n{LEVELS}"
STEP = "steps:\n- {method: rtn, format: int8, targets: TARGETS}\n"
RECIPES = {
    "aliases": (BOMB, "line 5, column 5: anchors and aliases are not read here"),
    "a merge": ("a: &a {b: 1}\nc: {<<: *a}", "line 1, column 4: anchors and aliases"),
    "deep lists": ("steps: " + "[" * 5000, "more than 16 levels"),
    "deep blocks": ("- " * 5000 + "a", "more than 16 levels"),
    "deep keys": ("? " * 5000 + "a", "more than 16 levels"),
    "a long number": ("floats: " + "9" * 6000, "line 1, column 9: a number of more than 40 digits"),
    "a long hex number": ("floats: 0x" + "f" * 20_000, "a number of more than 40 digits"),
    "a number to base 60": ("floats: 1" + ":59" * 20_000, "a number of more than 40 digits"),
    "no number": ("floats: !!int x", "line 1, column 9: this value cannot be read"),
    "no float": ("floats: !!float ''", "line 1, column 9: this value cannot be read"),
    "a date by tag": ("floats: !!timestamp 2001-99-99", "could not determine a constructor"),
    "an object": ("floats: !!python/object/apply:os.system [id]", "could not determine"),
    "binary": ("floats: !!binary x", "could not determine a constructor"),
    "the same key": ("floats: bf16\nfloats: fp32", "line 2, column 1: this key is there already"),
    "a key that is a list": ("? [a]\n: b", "found unhashable key"),
    "a tab": ("steps:\n\t- a", "line 2, column 1: "),
    "a control character": ("floats: \x1b[31m", "unacceptable character #x001b"),
    "a NUL": ("\0", "unacceptable character"),
    "two documents": ("floats: bf16\n---\nfloats: fp32", "line 2, column 1: expected a single"),
    "many values": (f"[{'a,' * (MAX_VALUES + 1)}]", "more than 100,000 values"),
    "many bytes": ("#" * 4_000_001, "at most 4.00 MB are read"),
    "a date": (STEP.replace("TARGETS", "2001-99-99"), "saw: '2001-99-99'"),
    "an odd number": (STEP.replace("TARGETS", "[.inf, 1]"), "saw: [inf, 1]"),
    "a long text": (STEP.replace("TARGETS", "x" * 100_000), "characters left out"),
    "escapes": (STEP.replace("TARGETS", r'"\e[31m\u202e\ud800"'), r"saw: '\x1b[31m\u202e\ud800'"),
    "an escaped key": (r'"\e]0;x\a": 1', r"saw: \x1b]0;x\x07"),
}


@pytest.mark.parametrize(("text", "says"), RECIPES.values(), ids=RECIPES)
def test_a_recipe_is_refused_in_one_line(
    text: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "odd.yaml"
    path.write_text(text)
    start_s = time.monotonic()
    assert main(["compress", "-o", str(tmp_path / "out"), "--recipe", str(path)]) == 2
    assert time.monotonic() - start_s < 30
    line = capsys.readouterr().err
    assert line.endswith("\n")
    assert is_safe(line[:-1])
    assert len(line) < 3_000
    assert says in line


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "odd.yaml"
    path.write_bytes(b"floats: \xff")
    with pytest.raises(ConfigError, match="byte 8 is not UTF-8"):
        read_recipe(path)


def test_a_document_that_python_gives_is_shown_in_part() -> None:
    """No file can, but a caller can hand in lists that stand for 10^11 entries."""
    value: object = "x"
    for _ in range(11):
        value = [value] * 10
    for document in ({"steps": [{"method": "rtn", "format": "int8", "targets": value}]}, value):
        with pytest.raises(ConfigError, match="is not valid") as caught:
            parse_recipe(document, "odd")
        assert len(str(caught.value)) < 3_000


CONFIGS = {
    "deep lists": b'{"model_type": ' + b"[" * 100_000,
    "deep objects": b'{"a":' * 300 + b"1" + b"}" * 300,
    "a long number": b'{"model_type": "llama", "vocab_size": ' + b"9" * 6000 + b"}",
    "a longish number": b'{"model_type": "llama", "vocab_size": ' + b"9" * 4000 + b"}",
    "NaN": b'{"model_type": "llama", "vocab_size": NaN}',
    "infinity": b'{"model_type": "llama", "vocab_size": -Infinity}',
    "1e999": b'{"model_type": "llama", "vocab_size": 1e999}',
    "not UTF-8": b'{"model_type": "\xff"}',
    "half a character": b'{"model_type": "\\ud800"}',
    "escapes": b'{"model_type": "\\u001b]0;x\\u0007\\u202e[red]"}',
    "a long text": b'{"model_type": "' + b"x" * 1_000_000 + b'"}',
    "a long list": b'{"model_type": [' + b"1," * 300_000 + b"1]}",
    "a list": b"[]",
    "a NUL": b"\0",
    "nothing": b"",
}


@pytest.mark.parametrize("data", CONFIGS.values(), ids=CONFIGS)
def test_a_config_is_refused_in_one_line(
    data: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_bytes(data)
    assert main(["inspect", str(tmp_path / "config.json")]) == 2
    line = capsys.readouterr().err
    assert is_safe(line[:-1])
    assert len(line) < 3_000


def test_fields_of_a_deep_config_are_refused_before_they_are_walked(tmp_path: Path) -> None:
    """Python's parser takes 900 levels; the next who walks over them would fail."""
    config = {"model_type": "llama", "quantization_config": json.loads("[" * 900 + "]" * 900)}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert main(["inspect", str(tmp_path / "config.json")]) == 2


TRACES = {
    "deep": "[" * 5000,
    "a long number": '{"timestamp": 1, "input_length": ' + "9" * 6000 + ', "output_length": 1}',
    "a longish number": '{"timestamp": 1, "input_length": ' + "9" * 90 + ', "output_length": 1}',
    "infinity": '{"timestamp": 1e999, "input_length": 1, "output_length": 1}',
    "NaN": '{"timestamp": NaN, "input_length": 1, "output_length": 1}',
    "escapes": '{"timestamp": "\\u001b[31m\\u202e", "input_length": 1, "output_length": 1}',
    "odd ids": json.dumps(
        {"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": ["x" * 99_999]}
    ),
    "a long line": '{"timestamp": "' + "x" * MAX_LINE_CHARS,
    "columns": "\x1b[31m,\u202e,c\n1,2,3\n",
    "many columns": "a," * 400_000 + "b\n",
    "a date": "TIMESTAMP,ContextTokens,GeneratedTokens\n2001-99-99,1,1\n",
    "a long cell": "arrived_at,num_prefill_tokens,num_decode_tokens\n1," + "9" * 100_000 + ",1\n",
}


@pytest.mark.parametrize("text", TRACES.values(), ids=TRACES)
def test_a_trace_is_refused_in_one_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(text)
    with pytest.raises(ParedownError) as caught:
        read_trace(path)
    assert is_safe(str(caught.value))
    assert len(str(caught.value)) < 3_000
