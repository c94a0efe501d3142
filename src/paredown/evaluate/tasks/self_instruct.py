"""The 252 user-oriented instructions of Self-Instruct (arXiv 2212.10560), answered greedily and
judged by ROUGE-L, as MiniLLM does (arXiv 2306.08543)."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from paredown.engine.llm import LLM, Completion
from paredown.engine.prompt import encode_chat, encode_prompt
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.errors import CheckpointError, ConfigError
from paredown.evaluate.tasks.rouge import Rouge
from paredown.evaluate.texts.text import DATA_VARIABLE, read_text
from paredown.json_text import JsonTextError, parse_json
from paredown.models.text.tokenizer import Tokenizer
from paredown.progress import OnCount

DATA_FILE = Path("tasks") / "self-instruct" / "user_oriented_instructions.jsonl"
DEFAULT_ANSWER_TOKENS = 256
# Prompts that are handed over together: many enough for full batches, few enough to see progress.
_AT_ONCE = 32
_PLAIN = (
    "Below is an instruction that describes a task. Write a response that appropriately completes "
    "the request.\n\n### Instruction:\n{}\n\n### Response:\n"
)


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """A question with its input, and the answer that is expected."""

    prompt: str
    expected: str


@dataclass(frozen=True, kw_only=True)
class SelfInstructResult:
    """`rouge_l` is the mean F-measure, from 0 to 1. `ended` is the share of answers that the model
    ended itself. `num_left_out` counts instructions that the context does not hold. `asked` says
    how the model was asked: chat is its template, plain is MiniLLM's prompt."""

    rouge_l: float
    num_instructions: int
    num_left_out: int
    mean_answer_tokens: float
    ended: float
    asked: str


def read_instructions(path: Path | None, limit: int | None = None) -> list[Instruction]:
    """Reads the first `limit` instructions of the file, else of $PAREDOWN_DATA. Raises ConfigError
    without a file or with one of another form, and CheckpointError for one that cannot be read."""
    if limit is not None and limit < 1:
        raise ConfigError(
            "there is nothing to answer", seen=limit, remedy="Give --limit 1 or more."
        )
    if path is None:
        folder = os.environ.get(DATA_VARIABLE)
        path = Path(folder or "") / DATA_FILE
        if folder is None or not path.is_file():
            raise ConfigError(
                "the instructions are not there",
                seen=f"no file {path}" if folder else f"{DATA_VARIABLE} is not set",
                remedy=f"Set {DATA_VARIABLE} to a folder that holds {DATA_FILE}, or name the file "
                "with --text.",
            )
    found: list[Instruction] = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if line.strip():
            try:
                found += _instructions(parse_json(line))
            except (JsonTextError, KeyError, TypeError) as error:
                raise ConfigError(
                    f"{path} does not hold instructions",
                    seen=f"line {number}: {error}",
                    remedy="Give JSON lines with `instruction` and `instances`, a list of `input` "
                    "and `output`.",
                ) from error
    if not found:
        raise ConfigError(
            f"{path} does not hold instructions", seen="an empty file", remedy="Give another file."
        )
    return found[:limit]


def _instructions(fields: object) -> Iterator[Instruction]:
    if not isinstance(fields, dict):
        raise TypeError("no object")
    for instance in fields["instances"]:
        asked, given, expected = fields["instruction"], instance["input"], instance["output"]
        if not all(isinstance(one, str) for one in (asked, given, expected)):
            raise TypeError("an instruction, input or output that is no text")
        yield Instruction(prompt=f"{asked}\n\n{given}" if given else asked, expected=expected)


def measure_self_instruct(
    llm: LLM,
    instructions: Sequence[Instruction],
    rouge: Rouge,
    *,
    answer_tokens: int = DEFAULT_ANSWER_TOKENS,
    on_progress: OnCount | None = None,
) -> SelfInstructResult:
    """Answers each instruction with at most `answer_tokens` tokens. Raises ConfigError for none of
    them, and where the context holds no instruction, and CheckpointError where the model fails."""
    if answer_tokens < 1:
        raise ConfigError(
            "an answer has at least one token",
            seen=answer_tokens,
            remedy="Give longer answers (--answer-tokens).",
        )
    prompts = [encoded_instruction(llm.tokenizer, one.prompt) for one in instructions]
    room = llm.max_prompt_tokens - answer_tokens
    fitting = [index for index, prompt in enumerate(prompts) if len(prompt) <= room]
    if not fitting:
        raise ConfigError(
            "the model's context holds none of the instructions with an answer",
            seen=f"{llm.max_prompt_tokens} tokens, answers of {answer_tokens}",
            remedy="Give shorter answers (--answer-tokens).",
        )
    params = SamplingParams(temperature=0.0, max_tokens=answer_tokens)
    answers: list[Completion] = []
    for start in range(0, len(fitting), _AT_ONCE):
        together = fitting[start : start + _AT_ONCE]
        answers += llm.generate([prompts[index] for index in together], params)
        if on_progress is not None:
            on_progress(len(answers), len(fitting))
    _check(answers)
    scores = [
        rouge(instructions[index].expected, answer.text)
        for index, answer in zip(fitting, answers, strict=True)
    ]
    count = len(fitting)
    return SelfInstructResult(
        rouge_l=sum(scores) / count,
        num_instructions=count,
        num_left_out=len(prompts) - count,
        mean_answer_tokens=sum(len(answer.token_ids) for answer in answers) / count,
        ended=sum(answer.finish_reason == "stop" for answer in answers) / count,
        asked="chat" if llm.tokenizer.has_chat_template else "plain",
    )


def encoded_instruction(tokenizer: Tokenizer, prompt: str) -> list[int]:
    """Returns the tokens of the instruction in the model's chat template, else in MiniLLM's
    prompt."""
    if tokenizer.has_chat_template:
        return encode_chat(tokenizer, [{"role": "user", "content": prompt}])
    return encode_prompt(tokenizer, _PLAIN.format(prompt))


def _check(answers: Sequence[Completion]) -> None:
    failed = next((answer for answer in answers if answer.error is not None), None)
    if failed is not None:
        raise CheckpointError(
            "the model could not answer an instruction",
            seen=failed.error,
            remedy="Use another checkpoint: this one is damaged.",
        )
