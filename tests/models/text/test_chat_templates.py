"""Chat templates against Transformers' rendering, and damaged ones."""

from pathlib import Path

import pytest
from transformers import AutoTokenizer

from fakes.small_tokenizers import NAMES, byte_level, write_folder
from paredown.engine.prompt import encode_prompt
from paredown.errors import CheckpointError, RequestError
from paredown.models.files.folder_files import copy_files
from paredown.models.gguf.vocabulary import read_vocabulary
from paredown.models.text.tokenizer import Tokenizer

CLASS = {"tokenizer_class": "TokenizersBackend"}
TEMPLATE = """
{%- if messages[0]['role'] == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}
{{ bos_token }}
{% for message in messages %}
    {% if message.role == 'skip' %}
        {% continue %}
    {% endif %}
<|{{ message.role }}|>{{ message['content'] | trim }}{{ message | tojson }}{{ eos_token }}
{% endfor %}
{% if add_generation_prompt %}
<|assistant|>
{% endif %}"""
MESSAGES: list[dict[str, object]] = [
    {"role": "system", "content": "  Be <brief> & café.\n"},
    {"role": "skip", "content": "x"},
    {"role": "user", "content": "Hi\nthere"},
]
USER: list[dict[str, object]] = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
NAMED = [
    {"name": "tool_use", "template": "T{{ tools | length }}{{ messages[0].content }}"},
    {"name": "default", "template": "D{{ messages[0].content }}"},
    {"name": "rag", "template": "{% for %}"},
]


def with_template(folder: Path, template: object, **names: object) -> Path:
    return write_folder(
        folder, byte_level(), {**NAMES, **CLASS, "chat_template": template, **names}
    )


def check_same(
    folder: Path,
    messages: list[dict[str, object]],
    tools: list[dict[str, object]] | None = None,
) -> str:
    theirs = AutoTokenizer.from_pretrained(folder)
    expected = theirs.apply_chat_template(
        messages, tools=tools, tokenize=False, add_generation_prompt=True
    )
    assert Tokenizer.open(folder).render_chat(messages, tools) == expected
    return str(expected)


@pytest.mark.parametrize("place", ["file", "config", "named"])
def test_places_of_a_template(place: str, tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "x"}, {"name": "default", "template": TEMPLATE}]
    with_template(tmp_path, {"file": "y", "config": TEMPLATE, "named": named}[place])
    if place == "file":
        (tmp_path / "chat_template.jinja").write_text(TEMPLATE)
    assert Tokenizer.open(tmp_path).has_chat_template
    assert "<brief> & café" in check_same(tmp_path, MESSAGES)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{% if tools is not none %}[tools]{% endif %}{{ messages[0].content }}", "hi"),
        ("{% if documents is not none %}[docs]{% endif %}{{ messages[0].content }}", "hi"),
        ("{{ tools is defined }}{{ documents is defined }}{{ tools }}", "TrueTrueNone"),
        ("{{ add_generation_prompt }}{{ bos_token }}{{ pad_token is defined }}", "True<s>False"),
        ("{{ mask_token }}{{ image_token }}{{ my_tool }}", "<m><i><t>"),
        (
            "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
            "hi",
        ),
        ("{%- generation -%} a {%- endgeneration -%} b", "ab"),
        (
            "{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}",
            "21",
        ),
        ("{{ {'b': '<é>', 'a': none} | tojson }}", '{"b": "<é>", "a": null}'),
        ("{{ [1, 2] | tojson(indent=1, separators=(',', ':')) }}", "[\n 1,\n 2\n]"),
        ("{% set n = namespace(a=1) %}{% set n.a = n.a + 1 %}{{ n.a }}", "2"),
        ("{% set n = namespace(self=1) %}{{ n.self }}", "1"),
        ("{{ dict(a=1) }}{{ range(3) | list }}", "{'a': 1}[0, 1, 2]"),
        ("{{ strftime_now('%%') }}", "%"),
        ("{{ messages[0].tool_calls is defined }}", "False"),
        ("{{ messages[0].thinking }}{{ messages[0].reasoning_content }}", "rr"),
    ],
)
def test_names_that_templates_are_given(template: str, expected: str, tmp_path: Path) -> None:
    extra = {"my_tool": "<t>"}
    with_template(
        tmp_path, template, mask_token="<m>", image_token="<i>", extra_special_tokens=extra
    )
    messages = [{**USER[0], "tool_calls": None, "reasoning": "r"}]
    assert check_same(tmp_path, messages) == expected


def test_named_templates(tmp_path: Path) -> None:
    path = with_template(tmp_path / "a", NAMED)
    assert check_same(path, USER) == "Dhi"
    assert check_same(path, USER, [TOOL]) == "T1hi"
    assert check_same(path, USER, []) == "T0hi"
    others = path / "additional_chat_templates"
    others.mkdir()
    (others / "tool_use.jinja").write_text("F{{ messages[0].content }}")
    assert check_same(path, USER, [TOOL]) == "Fhi"
    with pytest.raises(RequestError, match=r"of the name 'default' \(saw: tool_use\)"):
        Tokenizer.open(path).render_chat(USER)
    (path / "chat_template.jinja").write_text("E{{ messages[0].content }}")
    assert check_same(path, USER) == "Ehi"
    copied = tmp_path / "b"
    copied.mkdir()
    copy_files(path, copied)
    assert check_same(copied, USER, [TOOL]) == "Fhi"
    assert check_same(copied, USER) == "Ehi"


def test_named_templates_in_gguf_files(tmp_path: Path) -> None:
    path = with_template(tmp_path / "a", NAMED)
    vocabulary = read_vocabulary(path, 258)
    assert vocabulary.metadata["tokenizer.chat_template"] == "D{{ messages[0].content }}"
    assert vocabulary.metadata["tokenizer.chat_templates"] == ["tool_use", "rag"]
    key = "tokenizer.chat_template.tool_use"
    assert vocabulary.metadata[key] == "T{{ tools | length }}{{ messages[0].content }}"


def test_no_chat_template(tmp_path: Path) -> None:
    tokenizer = Tokenizer.open(write_folder(tmp_path, byte_level()))
    assert not tokenizer.has_chat_template
    with pytest.raises(RequestError, match="has no chat template"):
        tokenizer.render_chat(USER)


def test_a_conversation_without_messages(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="has no messages"):
        Tokenizer.open(with_template(tmp_path, "x")).render_chat([])


@pytest.mark.parametrize(
    ("template", "words"),
    [
        (TEMPLATE, "no tools here"),
        ("{{ messages[0].x.y }}", "has no attribute 'x'"),
        ("{{ messages[0] + 1 }}", "unsupported operand"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ messages.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "'append' of 'list' object is unsafe"),
        ("{% for i in range(10 ** 9) %}{% endfor %}", "Range too big"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
        ("{{ strftime_now(3) }}", "must be str"),
        ("{% include 'x' %}", "no loader"),
        ("{% set n = namespace() %}{% set n.__class__ = 1 %}", "no attribute '__class__'"),
        ("{{ namespace(**{'_x': 1}) }}", "no attribute '_x'"),
    ],
)
def test_what_a_template_raises_is_a_request_error(
    template: str, words: str, tmp_path: Path
) -> None:
    path = with_template(tmp_path, template)
    with pytest.raises(RequestError) as caught:
        Tokenizer.open(path).render_chat([{"role": "tool", "content": "x"}])
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "template",
    [
        "{% for %}",
        "{{",
        "{% generation %}",
        3,
        [{"name": "default"}],
        [1],
        {"default": 1},
        "{% if 1 %}" * 60 + "{% endif %}" * 60 + "{% for x in y %}" * 60 + "{% endfor %}" * 60,
    ],
)
def test_a_damaged_template_fails_where_a_chat_is_asked_for(
    template: object, tmp_path: Path
) -> None:
    tokenizer = Tokenizer.open(with_template(tmp_path, template))
    assert encode_prompt(tokenizer, "a") == [66]
    for _ in range(2):
        with pytest.raises(
            CheckpointError, match=r"config\.json: the chat template cannot be read"
        ):
            tokenizer.render_chat(USER)


def test_a_template_file_that_is_not_text(tmp_path: Path) -> None:
    path = with_template(tmp_path, "x")
    (path / "chat_template.jinja").write_bytes(b"\xff")
    tokenizer = Tokenizer.open(path)
    assert encode_prompt(tokenizer, "a") == [66]
    with pytest.raises(CheckpointError, match="the chat template cannot be read"):
        tokenizer.render_chat(USER)


def test_what_is_not_written_into_gguf_files_is_a_note(tmp_path: Path) -> None:
    path = with_template(tmp_path, 3, pad_token="<pad>")
    vocabulary = read_vocabulary(path, 258)
    assert "tokenizer.chat_template" not in vocabulary.metadata
    told = " ".join(vocabulary.notes)
    assert "the chat template cannot be read, and is not written" in told
    assert "no row for are not written: <pad>" in told
    assert "<pad>" not in str(vocabulary.metadata["tokenizer.huggingface.json"])


def test_the_names_that_a_template_reads_are_told(tmp_path: Path) -> None:
    template = (
        "{{ bos_token }}{% set ns = namespace(a=1) %}{% for m in messages %}{{ m.content }}"
        "{% endfor %}{% if enable_thinking is defined and not enable_thinking %}x{% endif %}"
        "{{ range(effort | default(1)) | list | length }}{{ tools }}{{ add_generation_prompt }}"
    )
    tokenizer = Tokenizer.open(with_template(tmp_path, template))
    assert tokenizer.template_value_names == {"enable_thinking", "effort"}
    assert tokenizer.render_chat(USER, template_values={"enable_thinking": False}).endswith(
        "hix1NoneTrue"
    )
    # What every chat gives comes first.
    assert tokenizer.render_chat(USER, template_values={"messages": [], "effort": 3}).endswith(
        "hi3NoneTrue"
    )


def test_names_of_all_templates_count_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    tokenizer = Tokenizer.open(with_template(tmp_path, NAMED[:2]))
    assert tokenizer.template_value_names == set()
    damaged = Tokenizer.open(with_template(tmp_path, "{% for %}"))
    with pytest.raises(CheckpointError, match="cannot be read"):
        _ = damaged.template_value_names
    assert Tokenizer.open(with_template(tmp_path, None)).template_value_names == set()
