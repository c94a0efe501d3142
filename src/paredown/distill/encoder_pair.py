"""Checks that a student and its teacher are of one kind, and that an encoder can learn as asked."""

from paredown.distill.data.encoder_data import EncoderData
from paredown.distill.data.learned_data import LearnedData
from paredown.distill.encoder_rows import NO_LABEL
from paredown.distill.methods import METHODS, find_method
from paredown.distill.text_objective import has_labels
from paredown.errors import ConfigError, UnsupportedError
from paredown.spec.model import ModelSpec


def check_kinds(student: ModelSpec, teacher: ModelSpec, method: str) -> None:
    """Raises UnsupportedError for an encoder that learns from a model that predicts tokens or the
    other way round, and for an encoder that cannot learn by this method or from this teacher."""
    if student.generates != teacher.generates:
        raise UnsupportedError(
            "the student and its teacher do not give the same thing",
            seen=f"{_kind(student)}, and {_kind(teacher)} as its teacher",
            remedy="Name two encoders, or two models that predict tokens.",
        )
    if student.generates:
        return
    asked = find_method(method)
    if not asked.suits_encoders:
        known = [name for name, one in METHODS.items() if one.suits_encoders]
        raise UnsupportedError(
            "an encoder predicts no tokens, which this way to learn needs",
            seen=method,
            remedy=f"Give --method {', '.join(known)}.",
        )
    if not asked.needs_teacher and not has_labels(student):
        raise UnsupportedError(
            "an encoder without labels learns from its teacher alone",
            seen=f"{method} for a head that gives {_gives(student)}",
            remedy="Give --method soft-label or tinybert, or a student that classifies.",
        )
    sizes = _output_size(student), _output_size(teacher)
    if asked.needs_teacher and (sizes[0] != sizes[1] or _gives(student) != _gives(teacher)):
        raise UnsupportedError(
            "the student's vectors cannot be compared with its teacher's",
            seen=f"{sizes[0]} numbers ({_gives(student)}), and {sizes[1]} ({_gives(teacher)})",
            remedy="Give a student with the teacher's head and width (every-2).",
        )


def check_labels(student: ModelSpec, method: str, data: LearnedData) -> None:
    """Raises ConfigError where labels alone are learned from, and the data has none."""
    needs_labels = not student.generates and not find_method(method).needs_teacher
    if not needs_labels or not isinstance(data, EncoderData):
        return
    if not (data.rows.labels != NO_LABEL).any():
        raise ConfigError(
            "there are no labels to learn from",
            seen=data.source,
            remedy='Give JSON lines with labels: {"text": ..., "label": ...} (--data), or learn '
            "from the teacher (--method soft-label).",
        )


def no_stored_logits() -> UnsupportedError:
    """Returns the error of an encoder that is to read stored distributions of tokens."""
    return UnsupportedError(
        "an encoder's teacher runs beside it; its vectors are not stored",
        seen="--teacher-logits",
        remedy="Leave out --teacher-logits.",
    )


def _kind(spec: ModelSpec) -> str:
    return "a model that predicts tokens" if spec.generates else "an encoder"


def _gives(spec: ModelSpec) -> str:
    return "token vectors" if spec.head is None else spec.head.kind.replace("_", " ")


def _output_size(spec: ModelSpec) -> int:
    return spec.hidden_size if spec.head is None else spec.head.output_size(spec.hidden_size)
