"""The format of calls that is found in a chat template."""

import json
from pathlib import Path

import pytest

from drivers.shared_data import data_folder, needs_data
from fakes.tool_formats import TOOL_FORMATS
from paredown.models.chat.turn_format import TurnFormat
from paredown.models.text.chat_templates import ChatTemplates, TemplateLimitError
from paredown.models.text.confined_process import ConfinedProcess, LateError

TEMPLATES = Path(__file__).parent / "templates"
SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


def found_in(name: str) -> TurnFormat:
    templates = ChatTemplates((TEMPLATES / f"{name}.jinja").read_text(), name)
    return TurnFormat.of(templates, SPECIAL_TOKENS)


@pytest.mark.parametrize("name", TOOL_FORMATS)
def test_the_format_of_a_template_is_found(name: str) -> None:
    assert found_in(name).tool_format == TOOL_FORMATS[name]


@pytest.mark.parametrize("name", ["without_tools", "python_calls", "channels", "opened"])
def test_a_template_without_calls_that_can_be_read_has_no_format(name: str) -> None:
    assert found_in(name).tool_format is None


def test_a_checkpoint_without_a_template_has_no_format() -> None:
    assert TurnFormat.of(ChatTemplates(None, "model"), {}) == TurnFormat()


def test_a_template_that_refuses_every_chat_has_no_format() -> None:
    source = "{{ raise_exception('never') }}"
    assert TurnFormat.of(ChatTemplates(source, "model"), {}) == TurnFormat()


def test_a_template_that_never_ends_is_rendered_once() -> None:
    source = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    templates = ChatTemplates(source, "model")
    rendered: list[object] = []
    render = templates.render
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(templates, "render", lambda *a, **k: (rendered.append(a), render(*a, **k))[1])
        assert TurnFormat.of(templates, {}) == TurnFormat()
    assert len(rendered) == 1


def test_a_machine_without_time_is_no_fault_of_the_template(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    templates = ChatTemplates((TEMPLATES / "tag_json.jinja").read_text(), "model")

    def late(*_: object, **__: object) -> bytes:
        raise LateError("it did not come to its end in time")

    with monkeypatch.context() as patch:
        patch.setattr(ConfinedProcess, "ask", late)
        with pytest.raises(TemplateLimitError, match="in time"):
            TurnFormat.of(templates, {})
    assert TurnFormat.of(templates, {}).tool_format == TOOL_FORMATS["tag_json"]


def test_the_template_for_tools_is_the_one_that_is_read() -> None:
    sources = {
        "default": (TEMPLATES / "without_tools.jinja").read_text(),
        "tool_use": (TEMPLATES / "named_tags.jinja").read_text(),
    }
    found = TurnFormat.of(ChatTemplates(sources, "model"), SPECIAL_TOKENS)
    assert found.tool_format == TOOL_FORMATS["named_tags"]


@needs_data("tokenizers")
def test_the_format_of_qwen_is_found_in_its_own_template() -> None:
    folder = data_folder("tokenizers/qwen2.5")
    assert folder is not None
    config = json.loads((folder / "tokenizer_config.json").read_text())
    found = TurnFormat.of(ChatTemplates.of_folder(Path("none"), config), {})
    assert found == TurnFormat(tool_format=TOOL_FORMATS["tag_json"])
