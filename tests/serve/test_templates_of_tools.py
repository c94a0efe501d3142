"""Conversations with tools as the checkpoint's own template has them (A07 of new-rooms)."""

import json

import pytest
import transformers

from drivers.chat_client import ADD, CHAT
from drivers.running_server import NUM_PAGES, running_server
from fakes.small_tokenizers import NAMES, byte_level, write_folder
from fakes.toy_executor import ToyExecutor, toy_spec
from paredown.models.text.tokenizer import Tokenizer

WRITES_JSON = """{%- if tools %}{{ tools | tojson }}{% endif %}
{%- for m in messages %}
{%- if m.tool_calls %}
{{- '<assistant>' + (m.content or '') }}
{%- for c in m.tool_calls %}
{{- '<tool_call>\\n{"name": "' + c.function.name + '", "arguments": ' }}
{{- c.function.arguments | tojson }}{{ '}\\n</tool_call>' }}
{%- endfor %}
{%- else %}
{{- '<' + m.role + '>' + m.content }}
{%- endif %}{{ '<end>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"""
READS_KEYS = WRITES_JSON.replace(
    "c.function.arguments | tojson }}",
    "'' }}{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }};{% endfor %}{{ '' }}",
)
JOINS_TEXT = WRITES_JSON.replace(
    "c.function.arguments | tojson }}", "'x' + c.function.arguments }}"
)
ARGUMENTS = '{"a": 1, "b": [2, null]}'


def conversation(arguments: object, **content: object) -> list[dict[str, object]]:
    function = {"name": "add", "arguments": arguments}
    return [
        {"role": "user", "content": "x"},
        {
            "role": "assistant",
            **content,
            "tool_calls": [{"id": "call00001", "type": "function", "function": function}],
        },
        {"role": "tool", "content": "3", "tool_call_id": "call00001"},
    ]


def prompt_tokens(
    tokenizer: Tokenizer, tools: list[object], *conversations: list[dict[str, object]]
) -> list[object]:
    """The number of tokens of each prompt, or the status of what is no answer."""
    executor = ToyExecutor(num_pages=NUM_PAGES, spec=toy_spec(max_positions=1024))
    with running_server(executor=executor, tokenizer=tokenizer) as server:
        found = list[object]()
        for messages in conversations:
            body = {"messages": messages, "tools": tools, "max_tokens": 1}
            reply = server.client.post(CHAT, json=body)
            is_answered = reply.status_code == 200
            told = reply.json()
            found.append(told["usage"]["prompt_tokens"] if is_answered else reply.status_code)
        return found


@pytest.mark.parametrize(
    ("source", "tools"),
    [(WRITES_JSON, [ADD]), (READS_KEYS, [])],
    ids=["writes JSON", "reads keys, in no known format"],
)
def test_arguments_are_what_transformers_renders_with_objects(source, tools, tmp_path):
    folder = write_folder(tmp_path, byte_level(), {**NAMES, "chat_template": source})
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    parsed = conversation(json.loads(ARGUMENTS), content="")
    wanted = theirs.apply_chat_template(parsed, tools=tools or None, add_generation_prompt=True)
    sent = [
        conversation(ARGUMENTS, **content) for content in ({"content": None}, {"content": ""}, {})
    ]
    assert prompt_tokens(Tokenizer.open(folder), tools, *sent) == [len(wanted["input_ids"])] * 3


def test_arguments_stay_text_where_the_template_joins_it(tmp_path):
    folder = write_folder(tmp_path, byte_level(), {**NAMES, "chat_template": JOINS_TEXT})
    tokenizer = Tokenizer.open(folder)
    sent = conversation(ARGUMENTS, content=None)
    rendered = tokenizer.render_chat(conversation(ARGUMENTS, content=""), [ADD])
    assert f"x{ARGUMENTS}" in rendered
    assert prompt_tokens(tokenizer, [ADD], sent) == [len(tokenizer.encode(rendered))]
