"""Work: what an operation asks with, and what it counts."""

from collections import Counter
from dataclasses import dataclass, field

from paredown.distill.black_box.answer import Answer
from paredown.distill.black_box.asker import Asker
from paredown.distill.black_box.request import Message, TeacherRequest


@dataclass(frozen=True, kw_only=True)
class Answering:
    """How questions are answered: with at most `answer_tokens` tokens. Answers that reach the limit
    are kept if `keeps_cut`."""

    model: str
    answer_tokens: int
    temperature: float
    keeps_cut: bool

    def request(
        self,
        messages: tuple[Message, ...],
        *,
        seed: int | None = None,
        temperature: float | None = None,
    ) -> TeacherRequest:
        return TeacherRequest(
            model=self.model,
            messages=messages,
            max_tokens=self.answer_tokens,
            temperature=self.temperature if temperature is None else temperature,
            seed=seed,
        )

    def fault(self, answer: Answer) -> str | None:
        """Returns why an answer is not kept; None where it is."""
        return answer.fault() or ("cut off" if answer.was_cut and not self.keeps_cut else None)


@dataclass(frozen=True, kw_only=True)
class Work:
    """One run of an operation. `num` is how many examples are wanted; None takes what the input
    gives. `dropped` counts by reason what is not in the result."""

    asker: Asker
    how: Answering
    num: int | None
    seed: int
    likeness: float
    dropped: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
