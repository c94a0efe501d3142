"""Runs JSON-Schema-Test-Suite through structured output: what ends is valid, what is cut off is a
beginning that the grammar allows, and what is refused is refused by name.

    python -m tools.conformance.json_schema_suite FOLDER

FOLDER holds the suite (https://github.com/json-schema-org/JSON-Schema-Test-Suite). Each group of
its required tests has a schema; the built-in model writes answers under it.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import jsonschema
import re2
from jsonschema.protocols import Validator

from paredown.engine.grammar.constraint import Constraint
from paredown.engine.grammar.grammar import Grammar, GrammarError
from paredown.engine.llm import LLM, Completion
from paredown.engine.sampling.sampling_params import SamplingParams

VALIDATORS = {
    "draft4": jsonschema.Draft4Validator,
    "draft6": jsonschema.Draft6Validator,
    "draft7": jsonschema.Draft7Validator,
    "draft2019-09": jsonschema.Draft201909Validator,
    "draft2020-12": jsonschema.Draft202012Validator,
}
URIS = {
    "draft4": "http://json-schema.org/draft-04/schema#",
    "draft6": "http://json-schema.org/draft-06/schema#",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}
MIN_ACCEPTED = 0.7
PROMPT = "An answer in JSON: "


@dataclass(frozen=True, kw_only=True)
class Group:
    """A schema of the suite, and where it stands."""

    draft: str
    file: str
    description: str
    schema: object

    @property
    def grammar(self) -> Grammar:
        schema = self.schema
        if isinstance(schema, dict) and "$schema" not in schema:
            schema = {"$schema": URIS[self.draft], **schema}
        return Grammar(kind="json_schema", text=json.dumps(schema))

    def __str__(self) -> str:
        return f"{self.draft}/{self.file}: {self.description}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--draft", choices=list(VALIDATORS), action="append")
    parser.add_argument("--answers", type=int, default=2, help="answers to each schema")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--refused", action="store_true", help="list what is refused, and why")
    options = parser.parse_args(arguments)
    groups = list(read_groups(options.folder, options.draft or list(VALIDATORS)))
    if not groups:
        print(f"{options.folder} has no tests of these drafts", file=sys.stderr)
        return 2
    run = Run(LLM(num_pages=512, num_threads=1), options.answers, options.max_tokens)
    for group in groups:
        run.add(group)
    return run.report(lists_refused=options.refused)


def read_groups(folder: Path, drafts: Sequence[str]) -> Iterator[Group]:
    """Yields the groups of the required tests."""
    for draft in drafts:
        for path in sorted((folder / "tests" / draft).glob("*.json")):
            for one in json.loads(path.read_text("utf-8")):
                yield Group(
                    draft=draft,
                    file=path.stem,
                    description=one["description"],
                    schema=one["schema"],
                )


class Run:
    """Asks for answers and judges them."""

    def __init__(self, llm: LLM, num_answers: int, max_tokens: int) -> None:
        self._llm = llm
        self._num_answers = num_answers
        self._max_tokens = max_tokens
        self._counts: dict[str, Counter[str]] = {}
        self._faults: list[str] = []
        self._refused: list[str] = []

    def add(self, group: Group) -> None:
        counts = self._counts.setdefault(group.draft, Counter())
        counts["groups"] += 1
        try:
            grammar = group.grammar
            params = [
                SamplingParams(grammar=grammar, max_tokens=self._max_tokens, seed=seed)
                for seed in range(self._num_answers)
            ]
            answers = self._llm.generate([PROMPT] * len(params), params)
        except GrammarError as error:
            counts["refused"] += 1
            self._refused.append(f"{group}: {error.seen}")
            if not names_keyword(str(error), group.schema):
                self._faults.append(f"{group}: refused without a name: {error.seen}")
            return
        counts["accepted"] += 1
        for answer in answers:
            counts[self._judge(group, grammar, answer)] += 1

    def _judge(self, group: Group, grammar: Grammar, answer: Completion) -> str:
        if answer.finish_reason == "stop":
            problem = invalid(group, answer.text)
            if problem is None:
                return "valid"
            self._faults.append(f"{group}: {answer.text!r}: {problem}")
            return "invalid"
        if answer.finish_reason == "length":
            constraint = Constraint(self._llm.engine.grammars.compile(grammar))
            constraint.see(answer.token_ids)
            if constraint.failure is None:
                return "cut"
        self._faults.append(f"{group}: {answer.text!r}: {answer.finish_reason}, {answer.error}")
        return "failed"

    def report(self, *, lists_refused: bool) -> int:
        """Prints the counts; returns 1 where something is wrong."""
        names = ("groups", "accepted", "refused", "valid", "cut", "invalid", "failed")
        total = Counter[str]()
        print("draft", *names, sep="\t")
        for draft, counts in self._counts.items():
            total += counts
            print(draft, *(counts[name] for name in names), sep="\t")
        share = total["accepted"] / total["groups"]
        print("all", *(total[name] for name in names), f"{share:.1%} accepted", sep="\t")
        for line in self._refused if lists_refused else ():
            print("refused:", line)
        for fault in self._faults:
            print("fault:", fault)
        return 0 if share >= MIN_ACCEPTED and not self._faults else 1


def names_keyword(message: str, schema: object) -> bool:
    """Returns whether the message holds a keyword of the schema, or says that it allows nothing."""
    if "allows nothing" in message or "nsatisfiable" in message:
        return True
    return any(keyword in message for keyword in keywords(schema))


def keywords(schema: object) -> set[str]:
    if isinstance(schema, dict):
        return set(schema) | {name for value in schema.values() for name in keywords(value)}
    if isinstance(schema, list):
        return {name for value in schema for name in keywords(value)}
    return set()


def invalid(group: Group, text: str) -> str | None:
    """Returns why the answer is not valid, if it is not."""
    try:
        value = json.loads(text)
    except ValueError as error:
        return f"not JSON: {error}"
    checked = jsonschema.validators.extend(
        VALIDATORS[group.draft], {"pattern": check_pattern, "patternProperties": check_names}
    )
    found = next(checked(group.schema).iter_errors(value), None)
    return None if found is None else found.message


def check_pattern(
    validator: Validator, pattern: str, value: object, schema: object
) -> Iterator[jsonschema.ValidationError]:
    """Yields an error for a text without a match. Python's `re` has no names of classes."""
    if isinstance(value, str) and not matches(pattern, value):
        yield jsonschema.ValidationError(f"{value!r} does not match {pattern!r}")


def check_names(
    validator: Validator, patterns: dict[str, object], value: object, schema: object
) -> Iterator[jsonschema.ValidationError]:
    """Yields the errors of properties whose names match."""
    if isinstance(value, dict):
        for pattern, one in patterns.items():
            for name in value:
                if matches(pattern, name):
                    yield from validator.descend(value[name], one, path=name, schema_path=pattern)


def matches(pattern: str, text: str) -> bool:
    """Returns whether RE2, which has short names of classes, finds the pattern."""
    return re2.search(pattern.replace(r"\p{Letter}", r"\p{L}"), text) is not None


if __name__ == "__main__":
    sys.exit(main())
