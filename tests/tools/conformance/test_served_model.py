"""The model that suites talk to: the built-in one, with a template for functions and thoughts."""

import json
from pathlib import Path

import pytest
from tools.conformance.served_model import CONTEXT_TOKENS, ServedModel

from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model
from paredown.models.text.tokenizer import Tokenizer

BASE = resolve_model(None)


def test_a_folder_is_written_once_and_differs_by_template(tmp_path: Path) -> None:
    other = tmp_path / "other.jinja"
    other.write_text("{{ messages[0].content }}")
    first = ServedModel().folder(BASE, tmp_path)
    assert ServedModel().folder(BASE, tmp_path) == first
    assert ServedModel(template=other).folder(BASE, tmp_path) != first


def test_its_context_holds_the_prompts_of_suites(tmp_path: Path) -> None:
    folder = ServedModel().folder(BASE, tmp_path)
    assert Checkpoint.open(folder).spec.max_positions == CONTEXT_TOKENS
    assert json.loads((folder / "tokenizer_config.json").read_text())["chat_template"]


@pytest.mark.parametrize(
    ("messages", "rendered"),
    [
        (
            [{"role": "user", "content": "Hi"}],
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
        ),
        (
            [
                {"role": "system", "content": "Be kind."},
                {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
                {"role": "assistant", "content": "Ho"},
                {"role": "user", "content": "Hi"},
            ],
            "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
            "<|im_start|>assistant\nHo<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
            "<|im_start|>assistant\n",
        ),
    ],
)
def test_a_conversation_is_rendered(
    tmp_path: Path, messages: list[dict[str, object]], rendered: str
) -> None:
    tokenizer = Tokenizer.open(ServedModel().folder(BASE, tmp_path))
    assert tokenizer.render_chat(messages) == rendered
