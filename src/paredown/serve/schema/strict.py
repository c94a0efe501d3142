"""Strict bodies: a field that we do not serve is refused by name, unless its value asks for
nothing."""

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from paredown.serve.errors import HttpError

# No object has this many known fields; beyond that, each unknown field would be an error.
MAX_FIELDS = 64
# The limit for a client's field name in messages.
MAX_SHOWN_CHARS = 64

# Fields of the OpenAI API and its extensions that we do not serve, each with the values that ask
# for nothing. Type and value must be equal.
NO_OPS: dict[str, tuple[object, ...]] = {
    "audio": (None,),
    "best_of": (None, 1),
    "echo": (None, False),
    "function_call": (None, "none"),
    "functions": (None, []),
    "metadata": (None, {}),
    "modalities": (None, ["text"]),
    "parallel_tool_calls": (None, True, False),
    "prediction": (None,),
    "reasoning_effort": (None,),
    "response_format": (None, {"type": "text"}),
    "service_tier": (None, "auto", "default"),
    "store": (None, False),
    "suffix": (None, ""),
    "tool_choice": (None, "none", "auto"),
    "tools": (None, []),
    "verbosity": (None,),
    "web_search_options": (None,),
}
# The same for a message of a conversation.
MESSAGE_NO_OPS: dict[str, tuple[object, ...]] = {
    "annotations": (None, []),
    "audio": (None,),
    "function_call": (None,),
    "name": (None,),
    "refusal": (None,),
    "tool_calls": (None, []),
}

Label = Annotated[str, Field(max_length=1024)]
# Lists stop at their first wrong entry: the errors of a long one would take gigabytes.
Texts = Annotated[list[str], Field(fail_fast=True)]
TokenIds = Annotated[list[int], Field(fail_fast=True)]
TokenSequences = Annotated[list[TokenIds], Field(fail_fast=True)]


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _count_fields(cls, fields: Any) -> Any:
        if isinstance(fields, dict) and len(fields) > MAX_FIELDS:
            raise PydanticCustomError(
                "too_many_fields",
                "The object holds {num} fields, at most {most}",
                {"num": len(fields), "most": MAX_FIELDS},
            )
        return fields


R = TypeVar("R", bound=BaseModel)


def parse(model: type[R], body: object) -> R:
    """Validates the body. Raises HttpError 400 that names the first field at fault."""
    try:
        return model.model_validate(body)
    except ValidationError as error:
        raise _as_http_error(error) from error


def drop_no_ops(fields: Any, no_ops: dict[str, tuple[object, ...]]) -> Any:
    """Returns the fields without unsupported ones whose value asks for nothing."""
    if not isinstance(fields, dict) or len(fields) > MAX_FIELDS:
        return fields
    return {
        name: value
        for name, value in fields.items()
        if not any(type(value) is type(one) and value == one for one in no_ops.get(name, ()))
    }


def _as_http_error(error: ValidationError) -> HttpError:
    first = error.errors(include_url=False, include_input=False)[0]
    if not first["loc"] and first["type"] == "too_many_fields":
        return HttpError(400, first["msg"], code="invalid_value")
    if not first["loc"]:
        return HttpError(400, "the body must be a JSON object", code="invalid_type")
    field = _cut(str(first["loc"][0]))
    path = ".".join(_cut(str(part)) for part in first["loc"])
    if first["type"] != "extra_forbidden":
        return HttpError(400, f"{path}: {first['msg']}", param=field, code="invalid_value")
    no_ops = NO_OPS | MESSAGE_NO_OPS
    name = str(first["loc"][-1])
    message = f"{path}: this field is not known"
    if name in no_ops:
        message = f"{path}: this field is not supported; leave it out"
    return HttpError(400, message, param=field, code="unsupported_parameter")


def _cut(name: str) -> str:
    return name if len(name) <= MAX_SHOWN_CHARS else f"{name[:MAX_SHOWN_CHARS]}..."
