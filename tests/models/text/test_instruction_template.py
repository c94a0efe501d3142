"""The template of encoder-decoders without one: exactly the system's words and the user's last."""

import json
from pathlib import Path

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.t5_tokenizer import END, write_t5_tokenizer
from paredown.errors import RequestError
from paredown.models.text.chat_template import compile_template
from paredown.models.text.instruction_template import instruction_template
from paredown.models.text.tokenizer import Tokenizer

TEXTS = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=30)
TRICKY = st.sampled_from(['"', "\\", "{{ 1 }}", "{% if %}", "\n", "\U0001f600", "</s>", ""])
WORDS = st.one_of(TEXTS, TRICKY)
EARLIER = st.lists(st.tuples(st.sampled_from(["system", "user", "assistant", "tool"]), WORDS))


def turns(*said: tuple[str, str]) -> list[dict[str, object]]:
    return [{"role": role, "content": text} for role, text in said]


@given(EARLIER, WORDS, st.lists(WORDS, max_size=2), st.lists(WORDS, max_size=2))
def test_the_text_has_nothing_else(earlier, last, before, after):
    template = compile_template(instruction_template(before, after))
    found = template.render(messages=turns(*earlier, ("user", last)), tools=[{"name": "f"}])
    system = "".join(f"{text}\n\n" for role, text in earlier if role == "system")
    assert found == "".join(before) + system + last + "".join(after)


@pytest.mark.parametrize("last", ["assistant", "tool", "system"])
def test_the_last_message_is_the_users(last):
    template = compile_template(instruction_template([], []))
    with pytest.raises(jinja2.TemplateError, match="the user's last message"):
        template.render(messages=turns(("user", "x"), (last, "y")))


def open_folder(folder: Path, **config: object) -> Tokenizer:
    write_t5_tokenizer(folder, 200)
    (folder / "config.json").write_text(json.dumps(config))
    return Tokenizer.open(folder)


def test_an_encoder_decoder_without_a_template_has_this_one(tmp_path):
    tokenizer = open_folder(tmp_path, is_encoder_decoder=True)
    assert tokenizer.has_chat_template
    assert tokenizer.reads_last_turn
    said = turns(("system", "Be short."), ("user", "no"), ("assistant", "so"), ("user", "yes"))
    assert tokenizer.encode(tokenizer.render_chat(said)) == [
        *tokenizer.encode("Be short.\n\nyes"),
        END,
    ]
    assert tokenizer.turn_format.tool_format is None
    with pytest.raises(RequestError, match="the user's last message"):
        tokenizer.render_chat(said[:-1])


def test_a_template_of_the_folder_comes_first(tmp_path):
    (tmp_path / "chat_template.jinja").write_text("{{ messages | length }}")
    tokenizer = open_folder(tmp_path, is_encoder_decoder=True)
    assert not tokenizer.reads_last_turn
    assert tokenizer.render_chat(turns(("user", "x"))) == "1"


@pytest.mark.parametrize("value", [False, None, "true"])
def test_other_models_have_none(tmp_path, value):
    tokenizer = open_folder(tmp_path, is_encoder_decoder=value)
    assert not tokenizer.has_chat_template
    assert not tokenizer.reads_last_turn
