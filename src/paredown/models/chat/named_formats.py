"""Formats of calls by name, for templates that do not show what their model writes."""

from paredown.models.chat.tool_format import (
    PYTHON_TAG,
    Around,
    JsonCall,
    NamedCall,
    TaggedCall,
    ToolFormat,
)

NAMED_FORMATS: dict[str, ToolFormat] = {
    "hermes": ToolFormat(
        body=JsonCall(), call=Around(start="<tool_call>\n", end="\n</tool_call>"), between="\n"
    ),
    "llama3": ToolFormat(
        body=JsonCall(arguments_key="parameters"), is_parallel=False, other_start=PYTHON_TAG
    ),
    "mistral": ToolFormat(
        body=JsonCall(id_key="id", is_array=True), section=Around(start="[TOOL_CALLS] ")
    ),
    "granite": ToolFormat(body=JsonCall(is_array=True), section=Around(start="<|tool_call|>")),
    "mistral-names": ToolFormat(
        body=NamedCall(after_name="[ARGS]", id_start="[CALL_ID]"), call=Around(start="[TOOL_CALLS]")
    ),
    "deepseek": ToolFormat(
        body=NamedCall(after_name="\n```json\n"),
        section=Around(start="<｜tool▁calls▁begin｜>", end="<｜tool▁calls▁end｜>"),
        call=Around(
            start="<｜tool▁call▁begin｜>function<｜tool▁sep｜>", end="\n```<｜tool▁call▁end｜>"
        ),
        between="\n",
        arguments_as="text",
    ),
    "kimi": ToolFormat(
        body=NamedCall(after_name="<|tool_call_argument_begin|>", id_start=":"),
        section=Around(start="<|tool_calls_section_begin|>", end="<|tool_calls_section_end|>"),
        call=Around(start="<|tool_call_begin|>functions.", end="<|tool_call_end|>"),
    ),
    "functions": ToolFormat(
        body=NamedCall(after_name=">"), call=Around(start="<function=", end="</function>")
    ),
    "qwen3-coder": ToolFormat(
        body=TaggedCall(
            after_name=">\n",
            argument=Around(start="<parameter=", end="\n</parameter>"),
            after_key=">\n",
            between="\n",
        ),
        call=Around(start="<tool_call>\n<function=", end="\n</function>\n</tool_call>"),
        between="\n",
    ),
    "glm": ToolFormat(
        body=TaggedCall(
            after_name="\n",
            argument=Around(start="<arg_key>", end="</arg_value>"),
            after_key="</arg_key>\n<arg_value>",
            between="\n",
        ),
        call=Around(start="<tool_call>", end="\n</tool_call>"),
        between="\n",
    ),
    "minimax": ToolFormat(
        body=TaggedCall(
            after_name='">\n',
            argument=Around(start='<parameter name="', end="</parameter>"),
            after_key='">',
            between="\n",
        ),
        section=Around(start="<minimax:tool_call>\n", end="</minimax:tool_call>"),
        call=Around(start='<invoke name="', end="\n</invoke>\n"),
    ),
}
