"""What the server takes and answers: endpoints, fields of a request, errors, metrics."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from pydantic import BaseModel

from paredown.cost.step_sums import Utilization
from paredown.engine.encode.encoder_worker import EncoderWorker
from paredown.engine.engine import Engine
from paredown.engine.sampling.sampling_params import RULES, SamplingParams
from paredown.engine.schedule.service import MAX_DEADLINE_S, MAX_PRIORITY
from paredown.serve.answers.response_cache import ResponseCache
from paredown.serve.endpoint_table import ENDPOINTS
from paredown.serve.errors import TYPES
from paredown.serve.schema import (
    chat,
    completion,
    encoder,
    generation,
    message,
    messages,
    response,
    response_items,
    strict,
    tokenize,
    tools,
)
from paredown.serve.watch.answer_metrics import answer_metrics
from paredown.serve.watch.answer_stats import AnswerStats
from paredown.serve.watch.encoder_metrics import encoder_metrics
from paredown.serve.watch.metrics import engine_metrics
from paredown.serve.watch.response_cache_metrics import response_cache_metrics
from paredown.serve.watch.utilization_gauges import utilization_metrics
from tools.reference.page import table
from tools.reference.source import calls, constant, modules, template

# What a field means. A field without an entry ends the run.
MEANINGS = {
    "add_generation_prompt": "end with the beginning of the answer; it cannot be left out",
    "add_special": "the same for `content`",
    "add_special_tokens": "put the tokens before a text that stand before every text",
    "allowed_token_ids": "nothing but these tokens may come",
    "bad_words": "sequences of token ids that may not come",
    "chat_template_kwargs": "values for the chat template, of those that are passed on",
    "context_management": "edits that clear parts of a conversation; nothing is cleared",
    "include": "nothing has an effect: what others bring beside an answer is not there",
    "instructions": "the system message; not carried over to later responses",
    "max_output_tokens": "tokens of an answer at most, reasoning too",
    "message tool_choice": '`{"type": ...}`: `auto`, `any`, `none`, or `tool` with its `name`',
    "message tools": "tools of the client, each with an `input_schema`",
    "output_config": "`effort` of reasoning, and `format` with the JSON schema of the answer",
    "parallel_tool_calls": "whether one turn may make several calls",
    "previous_response_id": "the stored response that this one goes on from",
    "prompt_cache_options": "accepted, has no effect",
    "reasoning": "`effort`; `summary` has no effect, since reasoning is told as it is",
    "reasoning_effort": "how much the model reasons, as far as its template can be told",
    "response input": "text, or items: messages, calls with their outputs, reasoning",
    "response text": "`format`: text, any JSON, or a JSON schema; `verbosity` has no effect",
    "stop_sequences": "texts that end the answer; `stop_sequence` tells which one came",
    "store": "whether the response is kept for later ones",
    "system": "the system message, as text or blocks",
    "thinking": "whether the model reasons first, and in `budget_tokens` at most",
    "thinking_budget": "tokens of reasoning at most; then its end is written for the model",
    "tool_choice": "`none`, `auto`, `required`, a named function, or `allowed_tools`",
    "tools": "functions that the model may call, with JSON schemas of their arguments",
    "verbosity": "accepted, has no effect",
    "cache_salt": "requests share cached prefixes with those of the same salt",
    "dimensions": "numbers of a vector, for models that were made to be cut",
    "documents": 'texts, or objects `{"text": ...}`',
    "encoding_format": "numbers, or little-endian float32 in base64",
    "deadline_s": "seconds from arrival to start (`--policy deadline`)",
    "echo": "repeat the prompt before the answer, with `logprobs` scored",
    "frequency_penalty": "taken off a token's logit for each time it came in the answer",
    "guided_choice": "older name of `structured_outputs` with `choice`",
    "guided_grammar": "older name of `structured_outputs` with `grammar`",
    "guided_json": "older name of `structured_outputs` with `json`",
    "guided_regex": "older name of `structured_outputs` with `regex`",
    "ignore_eos": "go on after the end-of-text token",
    "input": "text, texts, token ids, or lists of token ids; for labels texts or pairs",
    "input_type": "what the texts are for: `query`, `document`, ...; chooses the prompt",
    "logit_bias": "object from token ids, as strings, to numbers that are added to logits",
    "logprobs": "log-probabilities of the answer's tokens",
    "max_completion_tokens": "newer name of `max_tokens`; give one of them",
    "max_tokens": "tokens of an answer at most; 0 reads the prompt alone",
    "messages": "the conversation",
    "metadata": "accepted, has no effect",
    "min_p": "keep tokens that have this share of the best token's probability",
    "min_tokens": "nothing ends the answer before",
    "model": "left out, or the name that the server tells",
    "n": "answers to a prompt",
    "presence_penalty": "taken off the logit of each token that came in the answer",
    "priority": "larger ones first (`--policy priority`)",
    "prompt": "text, texts, token ids, or lists of token ids",
    "tokenize content": "a text, as llama.cpp asks for its tokens",
    "tokenize prompt": "a text; give it or `messages`",
    "with_pieces": "tell the text of each token of `content` beside its id",
    "encoder prompt": "put before each text in place of the model's own prompts",
    "prompt_logprobs": "log-probabilities of the prompt's tokens, as vLLM has them; not in streams",
    "prompt_name": "the name of one of the model's prompts",
    "query": "the text that documents are compared with",
    "prompt_cache_key": "accepted, has no effect",
    "prompt_cache_retention": "accepted, has no effect",
    "repetition_penalty": "divides the logits of tokens in prompt and answer",
    "response_format": "`json_schema` with a schema, `json_object` or `text` "
    "([structured output](structured_output.md))",
    "return_token_ids": "tell the tokens of prompt and answer, too",
    "return_token_strs": "tell each token as the vocabulary writes it, too",
    "return_documents": "whether results repeat their documents",
    "safety_identifier": "accepted, has no effect",
    "seed": "same seed, same answer; answer i of `n` has seed + i",
    "service_tier": "accepted, has no effect",
    "stop": "a text, or texts, that end the answer; they are not part of it",
    "stop_token_ids": "tokens that end the answer",
    "stream": "send pieces as they come, as server-sent events",
    "stream_options": "needs `stream`; `include_usage` adds a last piece with counts",
    "structured_outputs": "the form of the answer: one of `json`, `json_object`, `regex`, "
    "`choice`, `grammar`; at most one form in a request",
    "suffix": "the text after the answer, for models with fill-in-the-middle tokens",
    "temperature": "0 is greedy, larger values flatten the distribution",
    "text_1": "a text that is compared with all of the other field, or one for each of them",
    "text_2": "the texts that it is compared with",
    "timings": "tell how long queue, prompt and answer took",
    "tokens": "ids of tokens",
    "top_k": "keep the k likeliest tokens; 0 keeps all",
    "top_logprobs": "the likeliest tokens too; needs `logprobs`",
    "top_n": "results at most",
    "top_p": "keep the likeliest tokens that have this share together",
    "truncate": "`refuse` texts that are too long, or cut their `end` or `start`",
    "typical_p": "keep the most typical tokens that have this share together",
    "user": "the tenant, for fair shares",
}
# Defaults and limits that the server sets in code.
DEFAULTS = {
    "max_tokens": f"the model's, else {completion.DEFAULT_COMPLETION_TOKENS}; chat: the model's, "
    "else to the end of the context",
    "max_completion_tokens": "to the end of the context",
    "n": "1",
    "priority": "0",
    "store": "true",
    "stream": "false",
    "add_special": "false",
    "add_special_tokens": "true; /tokenize of `messages`: false",
    "with_pieces": "false",
    "encoding_format": "float",
    "return_documents": "false",
    "return_token_ids": "false",
    "return_token_strs": "false",
    "echo": "false",
    "timings": "false, or as `--timings` says",
    "truncate": "refuse; rerank: end",
    "user": "one tenant for all",
}
LIMITS = {
    "dimensions": "1 to the model's own size",
    "documents": f"{encoder.MAX_TEXTS} texts",
    "input": f"{encoder.MAX_TEXTS} texts",
    "text_1": f"{encoder.MAX_TEXTS} texts",
    "text_2": f"{encoder.MAX_TEXTS} texts",
    "top_n": "1 or more",
    "deadline_s": f"above 0 to {MAX_DEADLINE_S:g}",
    "priority": f"-{MAX_PRIORITY} to {MAX_PRIORITY}",
    "prompt": f"{completion.MAX_PROMPTS} prompts",
    "seed": "64 bits",
    "stop": f"{generation.MAX_STOPS} texts",
    "messages": f"1 to {message.MAX_MESSAGES:,}",
    "message tools": f"{tools.MAX_TOOLS} tools",
    "response input": f"1 to {response_items.MAX_ITEMS:,} items",
    "tools": f"{tools.MAX_TOOLS} tools, {tools.MAX_TOOLS_CHARS:,} characters",
}
# Which of our settings a field of another name fills.
SETTINGS = {"top_logprobs": "logprobs", "max_completion_tokens": "max_tokens"}


def blocks() -> dict[str, str]:
    return {
        "endpoints": table(("endpoint", "answers", "wants a key"), _endpoints()),
        "fields of both": _fields(generation.Generation),
        "fields of completions": _fields(completion.CompletionRequest, but=generation.Generation),
        "fields of chat": _fields(chat.ChatRequest, but=generation.Generation),
        "fields of tokenize": _fields(tokenize.TokenizeRequest, owner="tokenize"),
        "fields of detokenize": _fields(tokenize.DetokenizeRequest),
        "fields of responses": _fields(response.ResponseRequest, owner="response"),
        "fields of messages": _fields(messages.MessageRequest, owner="message"),
        "refused by responses": _refused(response.NO_OPS),
        "refused by messages": _refused(messages.NO_OPS),
        "fields of encoders": _fields(encoder.EncoderRequest),
        "fields of embeddings": _encoder_fields(encoder.EmbeddingRequest),
        "fields of rerank": _encoder_fields(encoder.RerankRequest),
        "fields of score": _encoder_fields(encoder.ScoreRequest),
        "fields of classify": _encoder_fields(encoder.ClassifyRequest),
        "refused by encoders": _refused(encoder.NO_OPS),
        "refused": _refused(strict.NO_OPS),
        "refused in messages": _refused(strict.MESSAGE_NO_OPS),
        "errors": table(("status", "`type`", "`code`", "`message`"), _errors()),
        "metrics": table(("metric", "for vLLM's dashboards", "meaning"), _metrics()),
        "metrics of encoders": table(("metric", "meaning"), _encoder_metrics()),
    }


def _endpoints() -> Iterator[tuple[str, str, str]]:
    for one in ENDPOINTS:
        path = one.told_path.replace("{name}", "NAME")
        key = "" if one.is_open else "yes"
        yield f"`{one.method} {path}`", one.summary, key


def _fields(model: type[BaseModel], but: type[BaseModel] | None = None, owner: str = "") -> str:
    """The fields of a request, `but` those that another says already. A name that means something
    else elsewhere is looked up with its `owner`."""
    left_out = but.model_fields if but is not None else {}
    document = model.model_json_schema()
    rows = []
    for name, field in document["properties"].items():
        if name in left_out:
            continue
        is_required = name in document.get("required", ())
        default = "required" if is_required else DEFAULTS.get(name) or _default(name)
        known = f"{owner} {name}" if f"{owner} {name}" in MEANINGS else name
        cells = (_type(field), default, _limits(known, field), _meaning(known, MEANINGS))
        rows.append((f"`{name}`", *cells))
    return table(("field", "type", "default", "limits", "meaning"), rows)


def _encoder_fields(model: type[BaseModel]) -> str:
    return _fields(model, but=encoder.EncoderRequest, owner="encoder")


def _meaning(name: str, meanings: Mapping[str, str]) -> str:
    if name not in meanings:
        raise ValueError(f"{name} is new: say in tools/reference/http_fields.py what it means")
    return meanings[name]


def _default(name: str) -> str:
    if name not in generation.SAME_NAMES:
        return ""
    value = getattr(SamplingParams(), name)
    return "" if value is None else str(value).lower()


def _type(field: Mapping[str, Any]) -> str:
    """JSON's words for it; null, which is as good as leaving the field out, is not named."""
    if "anyOf" in field:
        kinds = [_type(one) for one in field["anyOf"] if one.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if field.get("type") == "array":
        return f"list of {_type(field['items'])}"
    if "$ref" in field:
        return "object"
    return str(field.get("type", "object"))


def _limits(name: str, field: Mapping[str, Any]) -> str:
    if name in LIMITS:
        return LIMITS[name]
    for one in [field, *field.get("anyOf", ())]:
        if "maximum" in one:
            return f"{one['minimum']} to {one['maximum']}"
        if "maxLength" in one:
            return f"{one['maxLength']} characters"
    rule = RULES.get(SETTINGS.get(name, name))
    if field.get("anyOf", [field])[0].get("type") == "boolean":
        return ""
    low, high = getattr(rule, "low", None), getattr(rule, "high", None)
    if low is not None and high is not None:
        above = "above " if getattr(rule, "above", False) else ""
        return f"{above}{low:g} to {high:g}" if high < 2**31 else f"{low} or more" * (low > -1)
    if (count := getattr(rule, "max_count", None)) is not None:
        number = getattr(rule, "number", None)
        between = f", {number.low:g} to {number.high:g}" if number is not None else ""
        return f"{count:,} entries{between}"
    return ""


def _refused(no_ops: Mapping[str, tuple[object, ...]]) -> str:
    rows = [
        (f"`{name}`", ", ".join(f"`{json.dumps(value)}`" for value in values))
        for name, values in no_ops.items()
    ]
    return table(("field", "values that ask for nothing"), rows)


def _errors() -> list[tuple[str, str, str, str]]:
    rows = set()
    for module, tree in modules("serve"):
        for call in calls(tree, "HttpError"):
            status = constant(call.args[0], module)
            if not isinstance(status, int):
                continue
            code = next((one.value for one in call.keywords if one.arg == "code"), None)
            name = constant(code, module)
            shown = f"`{name}`" if name else ""
            kind = TYPES.get(status, "invalid_request_error")
            message = template(call.args[1], module)
            if not message.strip(".: "):
                message = "names the field, what was seen, and what to do"
            rows.add((str(status), f"`{kind}`", shown, message))
    return sorted(rows)


class _Numbers:
    """Stands for an engine where metrics are named: all that it has is a number, and 0."""

    def __getattr__(self, name: str) -> "_Numbers":
        return self

    def __float__(self) -> float:
        return 0.0

    def __len__(self) -> int:
        return 0

    def __iter__(self) -> Iterator[object]:
        return iter(())

    def _calculate(self, other: object) -> "_Numbers":
        return self

    __add__ = __sub__ = __mul__ = __rmul__ = __floordiv__ = _calculate


def _metrics() -> Iterator[tuple[str, str, str]]:
    yield "`paredown_ready`", "", "1 while requests are answered."
    metrics = [
        *engine_metrics(cast(Engine, _Numbers())),
        *answer_metrics(AnswerStats()),
        *utilization_metrics(Utilization(memory=0.0, arithmetic=0.0)),
        *response_cache_metrics(ResponseCache(1), 1),
    ]
    for metric in metrics:
        aliases = ", ".join(f"`{one.full_name}`" for one in metric.aliases)
        yield f"`paredown_{metric.name}`", aliases, metric.help


def _encoder_metrics() -> Iterator[tuple[str, str]]:
    for metric in encoder_metrics(cast(EncoderWorker, _Numbers())):
        yield f"`paredown_{metric.name}`", metric.help
