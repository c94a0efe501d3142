"""Formats of calls, one of each kind and quirk, by the names of tests/models/chat/templates."""

from paredown.models.chat.named_formats import NAMED_FORMATS
from paredown.models.chat.tool_format import Around, JsonCall, ToolFormat

TAG_JSON = NAMED_FORMATS["hermes"]
TOOL_FORMATS = {
    "tag_json": TAG_JSON,
    "bare_json": NAMED_FORMATS["llama3"],
    "marked_array": NAMED_FORMATS["mistral"],
    "tagged_array": ToolFormat(
        body=JsonCall(is_array=True), section=Around(start="<TOOLCALL>", end="</TOOLCALL>")
    ),
    "wrapped": ToolFormat(
        body=JsonCall(id_key="id", wrapper_key="function"),
        call=Around(start="<call>", end="</call>"),
    ),
    "sections": NAMED_FORMATS["deepseek"],
    "named": NAMED_FORMATS["mistral-names"],
    "named_tags": NAMED_FORMATS["functions"],
    "numbered": NAMED_FORMATS["kimi"],
    "tagged": NAMED_FORMATS["qwen3-coder"],
    "key_value": NAMED_FORMATS["glm"],
    "invoke": NAMED_FORMATS["minimax"],
}
