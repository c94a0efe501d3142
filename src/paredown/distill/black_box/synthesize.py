"""Makes training data by asking a teacher over HTTP."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from paredown.distill.black_box.answer_log import open_answer_log
from paredown.distill.black_box.asker import KEPT, Asker, AskLimits
from paredown.distill.black_box.correct import correct, harder
from paredown.distill.black_box.curate import curate
from paredown.distill.black_box.diversity import Diversity, diversity
from paredown.distill.black_box.example import Example
from paredown.distill.black_box.expand import expand
from paredown.distill.black_box.input_file import read_prompts, read_topics
from paredown.distill.black_box.label import label
from paredown.distill.black_box.prefer import prefer
from paredown.distill.black_box.rouge_l import DEFAULT_LIKENESS, words
from paredown.distill.black_box.teacher import TeacherConfig
from paredown.distill.black_box.work import Answering, Work
from paredown.errors import ConfigError, OutputError, TeacherError
from paredown.models.files.whole_file import is_there, whole_file
from paredown.progress import OnProgress
from paredown.units import format_count

LOG_ENDING = ".asked"


@dataclass(frozen=True, kw_only=True)
class Operation:
    """A way to make examples of an input. `read` gets its path, and whether the result is written
    as messages. `grows` says that it makes as many as are wanted, so that a number must be given.
    """

    summary: str
    read: Callable[[Path, bool], tuple[list[Any], Counter[str]]]
    make: Callable[[Work, Sequence[Any]], list[Example]]
    grows: bool = False


def _reads_prompts(num_answers: int) -> Callable[[Path, bool], tuple[list[Any], Counter[str]]]:
    return lambda path, as_messages: read_prompts(path, num_answers, as_messages=as_messages)


OPERATIONS: dict[str, Operation] = {
    "label": Operation(summary="answers to prompts", read=_reads_prompts(0), make=label),
    "expand": Operation(
        summary="more tasks from a few (Self-Instruct), and answers to all",
        read=_reads_prompts(0),
        make=expand,
        grows=True,
    ),
    "curate": Operation(
        summary="tasks about topics and their entities, and answers",
        read=lambda path, _: read_topics(path),
        make=curate,
        grows=True,
    ),
    "prefer": Operation(
        summary="the better of two answers",
        read=_reads_prompts(2),
        make=prefer,
    ),
    "correct": Operation(
        summary="answers of a student, corrected where they are wrong",
        read=_reads_prompts(1),
        make=correct,
    ),
    "harder": Operation(
        summary="the same, and more tasks like those that the student got wrong",
        read=_reads_prompts(1),
        make=harder,
        grows=True,
    ),
}


@dataclass(frozen=True, kw_only=True)
class SynthesisConfig:
    """Settings of a run: the teacher, and the examples that are wanted.

    `ask`            one of `OPERATIONS`
    `input`          file of prompts, answers or topics
    `teacher`        who is asked
    `num`            examples that are wanted; None takes all that the input gives
    `limits`         how the teacher may be asked
    `answer_tokens`  tokens of one answer, at most
    `temperature`    of answers and of new tasks; verdicts are greedy
    `keeps_cut`      keep answers that reached `answer_tokens`
    `as_messages`    write `messages`; else `prompt` and `completion`
    `likeness`       ROUGE-L from which a new task is too much like another
    `seed`           of the tasks that are shown as examples
    """

    ask: str
    input: Path
    teacher: TeacherConfig
    num: int | None = None
    limits: AskLimits = field(default_factory=AskLimits)
    answer_tokens: int = 512
    temperature: float = 0.7
    keeps_cut: bool = False
    as_messages: bool = True
    likeness: float = DEFAULT_LIKENESS
    seed: int = 0

    def __post_init__(self) -> None:
        if self.ask not in OPERATIONS:
            raise ConfigError(
                "nothing of that name can be asked for",
                seen=self.ask,
                remedy=f"Give --ask {', '.join(OPERATIONS)}.",
            )
        if self.num is None and OPERATIONS[self.ask].grows:
            raise ConfigError(
                f"{self.ask} makes as many examples as are wanted",
                seen="no number",
                remedy="Say how many with --num N.",
            )
        for name, value, least, most in (
            ("--num", self.num, 1, math.inf),
            ("--answer-tokens", self.answer_tokens, 1, math.inf),
            ("--temperature", self.temperature, 0, 2),
            ("--likeness", self.likeness, 0, 1),
        ):
            if value is not None and not least <= value <= most:
                limit = f" and at most {most}" if most < math.inf else ""
                raise ConfigError(
                    f"{name} is out of range",
                    seen=value,
                    remedy=f"Give {name} of at least {least}{limit}.",
                )


@dataclass(frozen=True, kw_only=True)
class SynthesisResult:
    """Examples that were written. `num_requests` were sent in this run, repeated ones too, and
    `num_tokens` spent in all runs. `useful` is the share of answers that something is to be learned
    from. `failures` counts requests without a useful answer by reason, and `dropped` all else that
    is not in the file."""

    path: Path
    num_examples: int
    num_requests: int
    num_tokens: int
    useful: float
    mean_answer_words: float
    prompts: Diversity
    answers: Diversity
    failures: Mapping[str, int]
    dropped: Mapping[str, int]
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, object]:
        return {**asdict(self), "path": str(self.path), "notes": list(self.notes)}


def synthesize(
    config: SynthesisConfig, output: Path | str, *, on_progress: OnProgress | None = None
) -> SynthesisResult:
    """Asks the teacher, and writes examples that `paredown distill --data` reads.

    Each answer is kept at once in a file beside `output` (docs/guide/black_box.md). A run that was
    stopped or killed goes on when it is started again; nothing that was answered is asked again.
    Also where the teacher fails, `output` has what could be made of its answers.

    `config`       what is asked for, of whom
    `output`       JSON lines; replaced if an earlier run wrote it
    `on_progress`  called with the current activity and the share of it that is done

    Raises ConfigError for a bad option or an input without anything to ask about, CheckpointError
    for one that cannot be read, TeacherError where the teacher does not answer or most answers are
    of no use, and OutputError where nothing can be written.
    """
    output = Path(output)
    operation = OPERATIONS[config.ask]
    items, dropped = operation.read(config.input, config.as_messages)
    config.teacher.key()
    log_path = output.with_name(output.name + LOG_ENDING)
    if is_there(output) and not is_there(log_path):
        raise OutputError(
            f"{output} exists already, and no earlier run of this verb wrote it",
            seen=f"no {log_path.name} beside it",
            remedy="Choose another output.",
        )
    expected = config.num or len(items)
    if not operation.grows:
        expected = min(expected, len(items))
    with (
        open_answer_log(log_path) as log,
        Asker(
            config.teacher, config.limits, log, _counted(config.ask, expected, on_progress)
        ) as asker,
    ):
        work = Work(
            asker=asker,
            how=Answering(
                model=config.teacher.model,
                answer_tokens=config.answer_tokens,
                temperature=config.temperature,
                keeps_cut=config.keeps_cut,
            ),
            num=config.num,
            seed=config.seed,
            likeness=config.likeness,
            dropped=dropped,
        )
        examples = operation.make(work, items)
        if examples:
            with whole_file(output) as file:
                for one in examples:
                    file.write(one.line(as_messages=config.as_messages))
    _check(work, output, len(examples))
    return _result(work, output, examples)


def _counted(what: str, expected: int, on_progress: OnProgress | None) -> Callable[[float], None]:
    """Returns what is called with the worth of each useful answer, in examples."""
    done = 0.0

    def count(worth: float) -> None:
        nonlocal done
        done += worth
        if on_progress is not None:
            on_progress(what, min(1.0, done / expected))

    return count


def _check(work: Work, output: Path, num_examples: int) -> None:
    """Raises TeacherError where the teacher is at fault."""
    asker = work.asker
    written = f"{output} has {format_count(num_examples, 'example')}. " if num_examples else ""
    if asker.error is not None:
        error = asker.error
        raise TeacherError(error.what, seen=error.seen, remedy=f"{written}{error.remedy}")
    num_failed = asker.failures.total()
    if num_failed > asker.num_useful:
        counted = f"{num_failed:,} of {num_failed + asker.num_useful:,}"
        raise TeacherError(
            "most requests have no useful answer",
            seen=f"{counted}: {_told(asker.failures)}",
            remedy=f"{written}{KEPT}",
        )
    if not num_examples:
        seen = f"left out: {_told(work.dropped)}" if work.dropped else "no answer"
        if asker.is_spent:
            raise TeacherError(
                "the budget of tokens is too small for an example",
                seen=f"{asker.num_tokens:,} tokens spent",
                remedy="Give a larger --max-tokens-total, or smaller --answer-tokens.",
            )
        raise TeacherError("no example could be made", seen=seen, remedy=KEPT)


def _result(work: Work, output: Path, examples: Sequence[Example]) -> SynthesisResult:
    asker = work.asker
    notes = list(work.notes)
    if asker.is_spent:
        notes.append("the budget of tokens ended the run")
    num_asked = asker.num_useful + asker.failures.total()
    completions = [one.completion for one in examples]
    return SynthesisResult(
        path=output,
        num_examples=len(examples),
        num_requests=asker.num_requests,
        num_tokens=asker.num_tokens,
        useful=asker.num_useful / num_asked if num_asked else 1.0,
        mean_answer_words=sum(len(words(one)) for one in completions) / len(completions),
        prompts=diversity([one.prompt for one in examples]),
        answers=diversity(completions),
        failures=dict(asker.failures),
        dropped=dict(work.dropped),
        notes=tuple(notes),
    )


def _told(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} ({count:,})" for reason, count in sorted(counts.items()))
