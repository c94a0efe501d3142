"""The fields that each route serves, as docs/guide/http.md has them: a test may send others, and
must then be refused by their name."""

from collections.abc import Mapping

_GENERATION = frozenset(
    {
        "frequency_penalty",
        "logit_bias",
        "logprobs",
        "max_tokens",
        "metadata",
        "model",
        "n",
        "presence_penalty",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "seed",
        "service_tier",
        "stop",
        "store",
        "stream",
        "stream_options",
        "temperature",
        "top_logprobs",
        "top_p",
        "user",
        "verbosity",
    }
)
_TOOLS = frozenset({"parallel_tool_calls", "tool_choice", "tools"})
_CONVERSATION = frozenset(
    {
        "include",
        "input",
        "instructions",
        "max_output_tokens",
        "previous_response_id",
        "reasoning",
        "text",
        "truncation",
    }
)

SERVED_FIELDS: Mapping[str, frozenset[str]] = {
    "/chat/completions": _GENERATION
    | _TOOLS
    | {"max_completion_tokens", "messages", "reasoning_effort", "response_format"},
    "/completions": _GENERATION | {"echo", "prompt", "suffix"},
    "/embeddings": frozenset({"dimensions", "encoding_format", "input", "model", "user"}),
    "/responses": _GENERATION | _TOOLS | _CONVERSATION,
    "/responses/input_tokens": _TOOLS | _CONVERSATION | {"model"},
}
# Without one of these there is nothing to answer; the mock server that the tests were written for
# answers all the same.
NEEDED_FIELDS: Mapping[str, tuple[str, ...]] = {
    "/responses": ("input",),
    "/responses/input_tokens": ("input",),
}
