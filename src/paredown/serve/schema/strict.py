"""Strict bodies: a field that we do not serve is refused by name, unless its value asks for
nothing."""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from paredown.serve.schema.wrong_value import wrong_value

# No object has this many known fields; beyond that, each unknown field would be an error.
MAX_FIELDS = 64

# Fields of the OpenAI API and its extensions that we do not serve, each with the values that ask
# for nothing. Type and value must be equal.
NO_OPS: dict[str, tuple[object, ...]] = {
    "audio": (None,),
    "best_of": (None, 1),
    "function_call": (None, "none"),
    "functions": (None, []),
    "modalities": (None, ["text"]),
    "moderation": (None,),
    "parallel_tool_calls": (None, True, False),
    "prediction": (None,),
    "reasoning_effort": (None,),
    "store": (None, False),
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
    "tool_calls": ([],),
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
        raise wrong_value(error, body, NO_OPS | MESSAGE_NO_OPS) from error


def drop_no_ops(fields: Any, no_ops: Mapping[str, tuple[object, ...]]) -> Any:
    """Returns the fields without unsupported ones whose value asks for nothing."""
    if not isinstance(fields, dict) or len(fields) > MAX_FIELDS:
        return fields
    return {
        name: value
        for name, value in fields.items()
        if not any(type(value) is type(one) and value == one for one in no_ops.get(name, ()))
    }
