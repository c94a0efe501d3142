"""The model that suites talk to: the built-in one, with a template for functions and thoughts."""

import json
from pathlib import Path

import pytest
from tools.conformance.served_model import CONTEXT_TOKENS, ServedModel

from paredown.models.checkpoint import Checkpoint
from paredown.models.text.tokenizer import Tokenizer


def test_a_folder_is_written_once_and_differs_by_template(tmp_path: Path) -> None:
    other = tmp_path / "other.jinja"
    other.write_text("{{ messages[0].content }}")
    first = ServedModel().folder(tmp_path)
    assert ServedModel().folder(tmp_path) == first
    assert ServedModel(template=other).folder(tmp_path) != first


def test_its_context_holds_the_prompts_of_suites(tmp_path: Path) -> None:
    folder = ServedModel().folder(tmp_path)
    assert Checkpoint.open(folder).spec.max_positions == CONTEXT_TOKENS
    assert json.loads((folder / "tokenizer_config.json").read_text())["chat_template"]


CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}


@pytest.mark.parametrize(
    ("messages", "rendered"),
    [
        ([{"role": "user", "content": "Hi"}], "Hi\n\n"),
        (
            [
                {"role": "system", "content": "Be kind."},
                {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
                {"role": "assistant", "content": "Ho"},
                {"role": "user", "content": "Hi"},
            ],
            "Be kind.\n\nHi\n\nHo\n\nHi\n\n",
        ),
        (
            [
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": None, "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": "c", "content": "2"},
            ],
            'Hi\n\n\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>\n\n'
            "<tool_response>\n2\n</tool_response>\n\n",
        ),
    ],
)
def test_a_conversation_is_rendered(
    tmp_path: Path, messages: list[dict[str, object]], rendered: str
) -> None:
    tokenizer = Tokenizer.open(ServedModel().folder(tmp_path))
    assert tokenizer.render_chat(messages) == f"<|endoftext|>{rendered}"


def test_an_answer_ends_with_its_paragraph(tmp_path: Path) -> None:
    tokenizer = Tokenizer.open(ServedModel().folder(tmp_path))
    (end,) = tokenizer.encode("\n\n")
    (line,) = tokenizer.encode("\n")
    assert end in tokenizer.eos_token_ids
    assert line not in tokenizer.eos_token_ids
