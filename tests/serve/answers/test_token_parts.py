import json

from fakes.toy_executor import ToyTokenizer
from paredown.serve.answers import token_parts
from paredown.serve.answers.chat_format import ChatFormat, told_token
from paredown.serve.answers.completion_format import CompletionFormat
from paredown.serve.answers.json_stream import to_json
from paredown.serve.answers.logprobs import LogprobToken
from paredown.serve.answers.token_parts import TokenParts

TEXTS = ["a", "", '"', "\\", "é\n", '"logprob":0.5', "\x00", "😀", b"\xc3", b"\xff\xfe"]


def test_the_parts_of_a_token_are_its_json():
    for text in TEXTS:
        before, after = ChatFormat().token_parts(text)
        assert f"{before}-1.25{after}" == to_json(told_token(LogprobToken(text, -1.25)))
        before, after = CompletionFormat().token_parts(text)
        assert list(json.loads("{" + before + "-1.25" + after + "}").values()) == [-1.25]


def test_each_token_is_written_once_and_not_all_are_kept(monkeypatch):
    written = list[object]()

    def write(text):
        written.append(text)
        return str(text), ""

    monkeypatch.setattr(token_parts, "MAX_KEPT", 2)
    parts = TokenParts(ToyTokenizer(), write)
    assert [parts[98][0], parts[98][0], parts[99][0], parts[100][0]] == ["a", "a", "b", "c"]
    assert written == ["a", "b", "c"]
    assert parts[100] == ("c", "")
    assert len(parts) == 2
