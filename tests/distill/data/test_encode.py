"""The loss sees the assistant's tokens with their end, and nothing else (D05, D11)."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from fakes.small_tokenizers import NAMES, byte_level, sentence_piece, write_folder
from paredown.distill.data.encode import Encoder
from paredown.distill.data.record import (
    Conversation,
    PlainText,
    PromptCompletion,
    Record,
    UnusableError,
)
from paredown.distill.rows import Rows, Text
from paredown.errors import ConfigError
from paredown.models.text.tokenizer import Tokenizer

CHATML = """
{%- for message in messages -%}
<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor -%}
{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"""
# Thoughts are shown in the last answer alone, as Qwen 3 does.
THINKING = """
{%- for message in messages -%}
<|im_start|>{{ message.role }}\n
{%- if message.role == 'assistant' and loop.last %}<think></think>{% endif -%}
{{ message.content }}<|im_end|>\n{% endfor -%}
{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"""
# An answer is opened with what the conversation does not keep, as DeepSeek R1 does.
OPENED = CHATML.replace(
    "<|im_start|>assistant\\n{% endif", "<|im_start|>assistant\\n<think>{% endif"
)
# Everything before the last message is left out.
FORGETFUL = """
{%- if add_generation_prompt %}Q{{ messages[-1].content }}A{% else %}{{ messages[-1].content }}
{%- endif %}"""
TURNS = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "ho"},
    {"role": "user", "content": "hi again"},
    {"role": "assistant", "content": "ho ho"},
]


def chat_tokenizer(folder: Path, template: str) -> Tokenizer:
    names = {**NAMES, "eos_token": "<|im_end|>", "chat_template": template}
    return Tokenizer.open(write_folder(folder, byte_level("<|im_start|>", "<|im_end|>"), names))


def learned(tokenizer: Tokenizer, record: Record) -> list[str]:
    """What is learned of each text, the parts divided by |."""
    found = []
    for text in Encoder(tokenizer, 1000).encode(record):
        assert text.is_target is not None
        parts, was = "", False
        for token, is_target in zip(text.token_ids, text.is_target, strict=True):
            if is_target:
                parts += ("|" if parts and not was else "") + tokenizer.decode([token], False)
            was = is_target
        found.append(parts)
    return found


def chat(turns: Sequence[Mapping[str, object]]) -> Conversation:
    return Conversation(messages=tuple(turns))


def test_the_loss_sees_the_answers_with_their_ends_alone(tmp_path: Path) -> None:
    tokenizer = chat_tokenizer(tmp_path, CHATML)
    assert learned(tokenizer, chat(TURNS)) == ["ho<|im_end|>|ho ho<|im_end|>"]
    (text,) = Encoder(tokenizer, 1000).encode(chat(TURNS))
    assert tokenizer.decode(text.token_ids, False) == tokenizer.render_chat(
        TURNS, opens_answer=False
    )


def test_prompt_tokens_are_those_that_the_model_is_asked_with(tmp_path: Path) -> None:
    tokenizer = chat_tokenizer(tmp_path, CHATML)
    (text,) = Encoder(tokenizer, 1000).encode(chat(TURNS[:3]))
    asked = tokenizer.encode(tokenizer.render_chat(TURNS[:2]))
    assert list(text.token_ids[: len(asked)]) == asked
    assert text.is_target is not None
    assert not any(text.is_target[: len(asked)])
    assert text.is_target[len(asked)]


def test_a_template_that_rewrites_answers_gives_a_text_for_each(tmp_path: Path) -> None:
    tokenizer = chat_tokenizer(tmp_path, THINKING)
    assert learned(tokenizer, chat(TURNS)) == [
        "<think></think>ho<|im_end|>",
        "<think></think>ho ho<|im_end|>",
    ]


def test_an_opening_that_the_conversation_does_not_keep_is_passed_over(tmp_path: Path) -> None:
    tokenizer = chat_tokenizer(tmp_path, OPENED)
    assert learned(tokenizer, chat(TURNS)) == ["ho<|im_end|>|ho ho<|im_end|>"]


def test_a_template_that_forgets_the_question_is_told(tmp_path: Path) -> None:
    tokenizer = chat_tokenizer(tmp_path, FORGETFUL)
    with pytest.raises(UnusableError, match="rewrites"):
        learned(tokenizer, chat(TURNS))


def test_an_assistant_that_speaks_first_is_context(tmp_path: Path) -> None:
    turns = [{"role": "assistant", "content": "Welcome."}, *TURNS[1:3]]
    assert learned(chat_tokenizer(tmp_path, CHATML), chat(turns)) == ["ho<|im_end|>"]


def test_a_model_without_a_template_takes_no_conversations(tmp_path: Path) -> None:
    tokenizer = Tokenizer.open(write_folder(tmp_path, byte_level()))
    with pytest.raises(ConfigError, match="no chat template"):
        learned(tokenizer, chat(TURNS))


def test_a_completion_is_learned_with_its_end(tmp_path: Path) -> None:
    tokenizer = Tokenizer.open(write_folder(tmp_path, byte_level(bos=True)))
    record = PromptCompletion(prompt="Q: a? A:", completion=" b")
    assert learned(tokenizer, record) == [" b</s>"]
    (text,) = Encoder(tokenizer, 1000).encode(record)
    assert tokenizer.decode(text.token_ids, False) == "<s>Q: a? A: b</s>"
    assert learned(tokenizer, PromptCompletion(prompt="", completion="b")) == ["b</s>"]


def test_a_token_that_straddles_the_border_is_learned(tmp_path: Path) -> None:
    tokenizer = Tokenizer.open(write_folder(tmp_path, sentence_piece()))
    record = PromptCompletion(prompt="ot", completion="ot")
    (text,) = Encoder(tokenizer, 1000).encode(record)
    _, _, o, to, t, _ = text.token_ids
    assert (o, to, t) == (5, 6, 4)
    assert text.is_target == [False, False, False, True, True, True]


def test_padding_with_the_end_token_hides_no_end(tmp_path: Path) -> None:
    """Padding equal to the end token: both ends count, and exactly the two places of padding do
    not."""
    tokenizer = Tokenizer.open(write_folder(tmp_path, byte_level()))
    encoder = Encoder(tokenizer, 1000)
    texts = [
        text
        for words in ("ab", "abcd")
        for text in encoder.encode(PromptCompletion(prompt="", completion=words))
    ]
    ends = [tokenizer.eos_token_id]
    first, second = (list(text.token_ids) for text in texts)
    assert first[-1:] == second[-1:] == ends
    rows = Rows.pack([Text(token_ids=first), Text(token_ids=second)], len(second))
    assert rows.num_rows == 2
    ignored = ~rows.is_target_NT
    assert ignored.tolist() == [[True, False, False, True, True], [True] + [False] * 4]
    assert rows.tokens_NT[1][-1] == ends[0]


def test_a_text_begins_and_ends_as_texts_do(tmp_path: Path) -> None:
    tokenizer = Tokenizer.open(write_folder(tmp_path, byte_level()))
    encoder = Encoder(tokenizer, 1000)
    (whole,) = encoder.encode(PlainText(text="ab"))
    (part,) = encoder.encode(PlainText(text="ab", ends=False))
    assert tokenizer.decode(whole.token_ids, False) == "<s>ab</s>"
    assert tokenizer.decode(part.token_ids, False) == "<s>ab"
    assert whole.is_target is None


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (PlainText(text="a\ud800"), "not valid Unicode"),
        (PromptCompletion(prompt="\ud800", completion="a"), "not valid Unicode"),
        (PlainText(text="a<s>"), "a token that the model does not have"),
    ],
)
def test_unusable_records_say_why(record: Record, reason: str, tmp_path: Path) -> None:
    tokenizer = Tokenizer.open(write_folder(tmp_path, byte_level("<x>")))
    with pytest.raises(UnusableError, match=reason):
        Encoder(tokenizer, 2 if "model" in reason else 1000).encode(record)
