"""The fields that ask for an answer of a certain form, under the names of OpenAI's API and of
vLLM."""

from typing import Annotated, Any, Literal

from pydantic import Field

from paredown.engine.grammar.grammar import MAX_CHOICES, Grammar
from paredown.serve.errors import HttpError
from paredown.serve.schema.strict import Label, Strict

# A schema may come as an object or as its text.
Schema = dict[str, Any] | bool | str
Choices = Annotated[list[str], Field(fail_fast=True, min_length=1, max_length=MAX_CHOICES)]
MAX_DESCRIPTION_CHARS = 65_536


class JsonSchemaFormat(Strict):
    """`schema` is absent where any JSON object will do. `strict` changes nothing: every schema is
    kept."""

    name: Label | None = None
    description: Annotated[str, Field(max_length=MAX_DESCRIPTION_CHARS)] | None = None
    # A field named "schema" would hide a method of pydantic's.
    schema_: Annotated[Schema | None, Field(alias="schema")] = None
    strict: bool | None = None


class ResponseFormat(Strict):
    """`schema` beside `json_object` is llama.cpp's."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None
    schema_: Annotated[Schema | None, Field(alias="schema")] = None

    def grammar(self, origin: str) -> Grammar | None:
        """Returns what the answer must be. Raises HttpError for a part that does not fit."""
        if (self.json_schema is not None) != (self.type == "json_schema"):
            raise HttpError(
                400,
                f"{origin}: json_schema and the type json_schema come together",
                param=origin,
                code="invalid_value",
            )
        if self.type == "text":
            return None
        schema = self.schema_ if self.json_schema is None else self.json_schema.schema_
        if schema is None:
            return Grammar(kind="json_object", origin=origin)
        return Grammar.json_schema(schema, origin=origin)


class StructuredOutputs(Strict):
    """The constraints of vLLM's `structured_outputs`, of which one is given."""

    json_: Annotated[Schema | None, Field(alias="json")] = None
    json_object: bool | None = None
    regex: str | None = None
    choice: Choices | None = None
    grammar: str | None = None

    def read(self, origin: str) -> list[Grammar]:
        """Returns the grammars that are asked for."""
        found = []
        if self.json_ is not None:
            found.append(Grammar.json_schema(self.json_, origin=origin))
        if self.json_object:
            found.append(Grammar(kind="json_object", origin=origin))
        if self.regex is not None:
            found.append(Grammar(kind="regex", text=self.regex, origin=origin))
        if self.choice is not None:
            found.append(Grammar.choice(self.choice, origin=origin))
        if self.grammar is not None:
            found.append(Grammar(kind="lark", text=self.grammar, origin=origin))
        return found


class Structure(Strict):
    """At most one of these is given. `guided_*` are older names of `structured_outputs`."""

    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: Schema | None = None
    guided_regex: str | None = None
    guided_choice: Choices | None = None
    guided_grammar: str | None = None

    def grammar(self) -> Grammar | None:
        """Returns the form of the answer, if one is asked for. Raises HttpError for more than one,
        and GrammarError."""
        found: list[Grammar] = []
        if self.response_format is not None:
            one = self.response_format.grammar("response_format")
            found += [] if one is None else [one]
        if self.structured_outputs is not None:
            found += self.structured_outputs.read("structured_outputs")
        if self.guided_json is not None:
            found.append(Grammar.json_schema(self.guided_json, origin="guided_json"))
        if self.guided_regex is not None:
            found.append(Grammar(kind="regex", text=self.guided_regex, origin="guided_regex"))
        if self.guided_choice is not None:
            found.append(Grammar.choice(self.guided_choice, origin="guided_choice"))
        if self.guided_grammar is not None:
            found.append(Grammar(kind="lark", text=self.guided_grammar, origin="guided_grammar"))
        if len(found) > 1:
            names = ", ".join(one.origin for one in found)
            raise HttpError(
                400,
                f"an answer has one form, and {len(found)} are asked for: {names}",
                param=found[1].origin,
                code="invalid_value",
            )
        return found[0] if found else None
