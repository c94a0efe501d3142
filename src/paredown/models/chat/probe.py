"""Probe: conversations whose names, keys and values are found again in what a template makes."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paredown.errors import RequestError
from paredown.models.chat.tool_format import ArgumentsAs
from paredown.models.text.chat_templates import ChatTemplates, TemplateLimitError

Message = dict[str, object]
_TAG = re.compile(r"<[^<>\s]+>")
_TURN_END = re.compile(
    r"<[|｜][^<>]*(end.of.(turn|sentence|text)|eo[tms]_id|eom_id|(?<![a-z])eos|im_end)[^<>]*[|｜]>",
    re.I,
)
CONTENT = "Zqcontent7"
THOUGHT = "Zqthought7"
USER: Message = {"role": "user", "content": "Zquestion7"}
KEYS = ("kq_one", "kq_two")


@dataclass(frozen=True, kw_only=True)
class ProbeCall:
    """A call of a tool that takes a text and a whole number."""

    name: str
    id: str
    values: tuple[str, int]

    @property
    def arguments(self) -> dict[str, object]:
        return dict(zip(KEYS, self.values, strict=True))

    def as_tool(self) -> Mapping[str, object]:
        properties = {
            key: {"type": name, "description": "Zqkey7"}
            for key, name in zip(KEYS, ("string", "integer"), strict=True)
        }
        parameters = {"type": "object", "properties": properties, "required": list(KEYS)}
        function = {"name": self.name, "description": "Zqtool7", "parameters": parameters}
        return {"type": "function", "function": function}

    def as_call(self, arguments_as: ArgumentsAs) -> Mapping[str, object]:
        given = self.arguments if arguments_as == "object" else json.dumps(self.arguments)
        return {"id": self.id, "type": "function", "function": self._function(given)}

    def _function(self, arguments: object) -> Mapping[str, object]:
        return {"name": self.name, "arguments": arguments}


# Templates of Mistral want ids of nine letters and digits.
CALLS = (
    ProbeCall(name="zq_alpha", id="zqid00001", values=("vqone", 4711)),
    ProbeCall(name="zq_beta", id="zqid00002", values=("vqtwo", 8153)),
)
# Kimi's template writes the id in place of the name.
NUMBERED_CALLS = (
    ProbeCall(name="zq_alpha", id="functions.zq_alpha:0", values=("vqone", 4711)),
    ProbeCall(name="zq_beta", id="functions.zq_beta:1", values=("vqtwo", 8153)),
)
TOOLS = tuple(call.as_tool() for call in CALLS)


@dataclass(frozen=True, kw_only=True)
class Probe:
    """Renders conversations of the probe. What a template refuses is None. Raises
    TemplateLimitError at the first conversation that takes too much: others would, too."""

    templates: ChatTemplates
    special_tokens: Mapping[str, str]

    def render(
        self,
        *turns: Message,
        opens_answer: bool = False,
        has_tools: bool = True,
        values: Mapping[str, object] | None = None,
    ) -> str | None:
        try:
            return self.templates.render(
                [USER, *turns],
                tools=TOOLS if has_tools else None,
                special_tokens=self.special_tokens,
                opens_answer=opens_answer,
                template_values=values,
            )
        except TemplateLimitError:
            raise
        except RequestError:
            return None

    def answer(self, turn: Message) -> str | None:
        """Returns what a template writes for a turn of the assistant, without what stands around
        every turn."""
        plain = self.render({"role": "assistant", "content": CONTENT})
        text = self.render(turn)
        if plain is None or text is None or CONTENT not in plain:
            return None
        before, after = plain.split(CONTENT, 1)
        num = _num_common(before, text)
        if num < len(before):
            num = _before_open_tag(text, num)
        return _without_end(text[num:], after)


def assistant_calls(
    calls: Sequence[ProbeCall], arguments_as: ArgumentsAs, content: str | None
) -> Message:
    return {
        "role": "assistant",
        "content": content,
        "tool_calls": [call.as_call(arguments_as) for call in calls],
    }


def _without_end(text: str, after: str) -> str:
    """Returns a turn without what stands behind every turn, or behind this one: a tag that ends
    others too, or whose name says that it ends a turn."""
    num = _num_common(after[::-1], text[::-1])
    shared = after[len(after) - num :]
    shared = shared if num == len(after) else shared[shared.find("<") :] if "<" in shared else ""
    text = text.removesuffix(shared)
    ends = [tag[0] for tag in [_TAG.search(after), _TURN_END.search(text)] if tag is not None]
    for end in ends:
        before, _, _ = text.partition(end)
        # A template may begin calls with what stands between turns.
        text = before if CALLS[0].name in before else text
    return text


def _num_common(first: str, second: str) -> int:
    pairs = zip(first, second, strict=False)
    return next(
        (i for i, (one, other) in enumerate(pairs) if one != other), min(len(first), len(second))
    )


def _before_open_tag(text: str, at: int) -> int:
    """Returns the start of the tag that `at` lies in, or `at` itself."""
    start = max(text.rfind("<", 0, at), text.rfind("[", 0, at))
    end = max(text.rfind(">", 0, at), text.rfind("]", 0, at))
    return start if start > end else at
