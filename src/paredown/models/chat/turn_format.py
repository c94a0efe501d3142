"""TurnFormat: how a model writes its turns: calls of tools and reasoning.

It is found by rendering the chat template: what stands around the names, arguments and thoughts of
a probe are the model's markers (models/chat/find_tool_format.py, models/chat/find_reasoning.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paredown.models.chat.find_reasoning import find_reasoning
from paredown.models.chat.find_tool_format import find_tool_format
from paredown.models.chat.probe import Probe
from paredown.models.chat.reasoning_format import ReasoningFormat
from paredown.models.chat.tool_format import ToolFormat
from paredown.models.chat.turn_parser import TurnParser
from paredown.models.text.chat_templates import ChatTemplates, TemplateLimitError
from paredown.models.text.confined_process import LateError


@dataclass(frozen=True, kw_only=True)
class TurnFormat:
    """`tool_format` is None where the template shows no tools, or none that can be read, and
    `reasoning` where it shows none."""

    tool_format: ToolFormat | None = None
    reasoning: ReasoningFormat | None = None

    @classmethod
    def of(cls, templates: ChatTemplates, special_tokens: Mapping[str, str]) -> "TurnFormat":
        """Renders some thirty short conversations, 1 ms each. A checkpoint without a template has
        no format, and neither has one whose template refuses the probe or comes to a limit. Raises
        CheckpointError for a damaged template, TemplateLimitError where the machine has no time,
        and NoProcessError."""
        if not templates.texts():
            return cls()
        probe = Probe(templates=templates, special_tokens=special_tokens)
        try:
            found, reasoning = find_tool_format(probe), find_reasoning(probe)
        except TemplateLimitError as error:
            if isinstance(error.__cause__, LateError):
                raise  # of the machine, not of the template
            return cls()
        if found is not None and reasoning is not None:
            found = found.without_before(reasoning.end)
        return cls(tool_format=found, reasoning=reasoning)

    @property
    def markers(self) -> tuple[str, ...]:
        """Returns all texts that the parser looks for."""
        tools = () if self.tool_format is None else self.tool_format.markers
        reasoning = () if self.reasoning is None else (self.reasoning.start, self.reasoning.end)
        return tools + reasoning

    def parser(
        self,
        *,
        tools: Sequence[Mapping[str, object]] | None = None,
        reasoning_open: bool = False,
        parallel: bool = True,
    ) -> TurnParser:
        """Returns the parser of one turn. `reasoning_open` says that the prompt ends inside
        reasoning (`is_reasoning_open`). Unless calls may be `parallel`, one is told."""
        return TurnParser(
            tool_format=self.tool_format,
            reasoning=self.reasoning,
            tools=tools or (),
            reasoning_open=reasoning_open,
            parallel=parallel,
        )

    def is_reasoning_open(self, prompt: str) -> bool:
        """Returns whether a rendered prompt ends inside reasoning."""
        return self.reasoning is not None and self.reasoning.stands_open(prompt)
