"""LayerMap: which layers of the teacher a student's layer is compared with.

TinyBERT's uniform map g(m) = m N / M (arXiv 1909.10351, section 4.1), rounded up where it is no
whole number. M and N are the numbers of layers of the student and its teacher.
"""

from dataclasses import dataclass
from typing import Literal

from paredown.errors import ConfigError, UnsupportedError
from paredown.spec.model import ModelSpec

# Which of the teacher's layers in a student's layer's place is compared inside.
Inside = Literal["first", "last"]


@dataclass(frozen=True, kw_only=True)
class LayerMap:
    """State m, what layer m - 1 puts out and state 0 the embedding, is compared with the teacher's
    state `states[m]`. So layer m of the student stands for one or more layers of the teacher; what
    happens inside it is compared with the `inside` of these. The first reads the same state, and is
    the layer itself in a student of every k-th layer; the last is TinyBERT's choice.

    Raises UnsupportedError for a student with more layers than its teacher."""

    num_student_layers: int
    num_teacher_layers: int
    inside: Inside = "first"

    def __post_init__(self) -> None:
        if self.num_student_layers > self.num_teacher_layers:
            raise UnsupportedError(
                "a student that learns from features cannot be deeper than its teacher",
                seen=f"{self.num_student_layers} layers, and {self.num_teacher_layers} of the "
                "teacher",
                remedy="Learn from the teacher's distribution alone (--method soft-label).",
            )

    @classmethod
    def of(cls, student: ModelSpec, teacher: ModelSpec, inside: Inside = "first") -> "LayerMap":
        """Returns the map of these two models."""
        return cls(
            num_student_layers=student.num_layers,
            num_teacher_layers=teacher.num_layers,
            inside=inside,
        )

    @property
    def states(self) -> tuple[int, ...]:
        """The teacher's state of each of the student's states, which ascend."""
        own, taught = self.num_student_layers, self.num_teacher_layers
        return tuple(-(-state * taught // own) for state in range(own + 1))

    def layers(self, index: int) -> range:
        """Returns the teacher's layers that the student's layer stands for."""
        return range(self.states[index], self.states[index + 1])

    def inner(self, index: int) -> int:
        """Returns the teacher's layer whose inside the student's layer is compared with."""
        layers = self.layers(index)
        return layers[0] if self.inside == "first" else layers[-1]


def checked_inside(name: str) -> Inside:
    """Returns the name. Raises ConfigError for an unknown one."""
    if name == "first":
        return "first"
    if name == "last":
        return "last"
    raise ConfigError(
        "there is no such map of layers",
        seen=name,
        remedy="Give --layer-map first or last.",
    )
