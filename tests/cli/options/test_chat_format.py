"""The options of chats at the start of a server."""

import argparse
from pathlib import Path

import pytest

from fakes.small_tokenizers import NAMES, byte_level, write_folder
from paredown.cli.options.chat_format import add_chat_format_arguments, prepare_chat
from paredown.models.chat.named_formats import NAMED_FORMATS
from paredown.models.chat.rendered_chat import EVERYTHING, TOOL_RESULTS
from paredown.models.text.tokenizer import Tokenizer

TEMPLATES = Path(__file__).parents[2] / "models" / "chat" / "templates"


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_chat_format_arguments(parser)
    return parser.parse_args(arguments)


def tokenizer_with(folder: Path, template: str | None) -> Tokenizer:
    library = byte_level("[TOOL_CALLS]", "[INST]")
    names = {**NAMES} if template is None else {**NAMES, "chat_template": template}
    return Tokenizer.open(write_folder(folder, library, names))


def test_the_format_is_found_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    template = (TEMPLATES / "marked_array.jinja").read_text()
    tokenizer = tokenizer_with(tmp_path, template)
    prepare_chat(parsed(), tokenizer)
    assert tokenizer.turn_format.tool_format == NAMED_FORMATS["mistral"]
    assert tokenizer.text_of == TOOL_RESULTS
    told = capsys.readouterr().err
    assert 'tools: json: [TOOL_CALLS] [{"name": "NAME", "arguments": {"KEY": "VALUE"}' in told
    assert "reasoning: none" in told
    # The mark of calls is a special token: what parses a turn must see it, and no other.
    ids = [tokenizer.vocabulary[one] for one in ("[TOOL_CALLS]", "[INST]", "</s>")]
    assert tokenizer.decode(ids) == "[TOOL_CALLS]"
    assert tokenizer.token_texts is not None
    assert [tokenizer.token_texts.of(one) for one in ids] == ["[TOOL_CALLS]", "", ""]


def test_a_user_may_name_the_format_or_turn_it_off(tmp_path: Path) -> None:
    template = (TEMPLATES / "without_tools.jinja").read_text()
    tokenizer = tokenizer_with(tmp_path, template)
    prepare_chat(parsed("--tool-format", "hermes"), tokenizer)
    assert tokenizer.turn_format.tool_format == NAMED_FORMATS["hermes"]
    prepare_chat(parsed("--tool-format", "none"), tokenizer)
    assert tokenizer.turn_format.tool_format is None


def test_everything_that_clients_write_may_be_only_text(tmp_path: Path) -> None:
    tokenizer = tokenizer_with(tmp_path, None)
    prepare_chat(parsed("--no-special-in-text"), tokenizer)
    assert tokenizer.text_of == EVERYTHING


def test_a_damaged_template_is_told_and_stops_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare_chat(parsed(), tokenizer_with(tmp_path, "{% for %}"))
    assert "chats cannot be rendered" in capsys.readouterr().err


def test_an_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed("--tool-format", "other")
    assert "hermes" in capsys.readouterr().err
