"""Predicts the memory that losses of features take. The factors were fitted to peaks of the
built-in model and its every-2 student, as those of memory.py were."""

from paredown.distill.features.layer_map import LayerMap
from paredown.distill.lesson_size import LessonSize
from paredown.spec.layer import LayerSpec
from paredown.spec.model import ModelSpec

# Float32 tensors of all scores of a layer that live at once, and those that are kept.
_SCORES_AT_ONCE = 4
_SCORES_KEPT = 1
# The same of hidden states, of the wider model; what the teacher's layers give is kept, too, also
# where layers run twice.
_STATES_AT_ONCE = 6
_STATES_KEPT = 5
# The same of the MLP's neurons.
_NEURONS_AT_ONCE = 5
_NEURONS_KEPT = 4
# Copies of all matrices of a layer, mapped.
_MATRICES = 6
# With gradients of gradients: tensors that a layer keeps, in scores, in hidden states, in outputs
# of its matrices, and what is kept of all logits.
_DOUBLE_SCORES = 4
_DOUBLE_STATES = 12
_DOUBLE_OUTPUTS = 3
_DOUBLE_LOGITS = 9


def tinybert_size(student: ModelSpec, teacher: ModelSpec) -> LessonSize:
    """Returns what TinyBERT takes (tinybert.py)."""
    heads = max(one.attention.num_heads for one in (*student.layers, *teacher.layers))
    states = _states_bytes(student, teacher)

    def part_bytes(num_rows: int, num_tokens: int, recomputes: bool) -> int:
        scores = 4 * num_rows * heads * num_tokens**2
        kept = 0 if recomputes else student.num_layers
        at_once = (_SCORES_AT_ONCE + kept * _SCORES_KEPT) * scores
        return at_once + num_rows * num_tokens * states

    num_parameters = student.hidden_size * teacher.hidden_size
    return LessonSize(num_parameters=num_parameters, part_bytes=part_bytes)


def _states_bytes(student: ModelSpec, teacher: ModelSpec) -> int:
    """Returns the bytes of hidden states for each token."""
    width = max(
        max(spec.hidden_size, *(layer.attention.query_size for layer in spec.layers))
        for spec in (student, teacher)
    )
    return 4 * width * (_STATES_AT_ONCE + (student.num_layers + 1) * _STATES_KEPT)


def boundary_size(
    student: ModelSpec, teacher: ModelSpec, sizes: tuple[tuple[int, int], ...]
) -> LessonSize:
    """Returns what boundaries take (boundaries.py), from the teacher's and the student's neurons of
    each layer."""
    num_parameters = sum(taught * own for taught, own in sizes)
    largest = max(taught for taught, _ in sizes)
    states = _states_bytes(student, teacher)

    def part_bytes(num_rows: int, num_tokens: int, recomputes: bool) -> int:
        kept = 0 if recomputes else len(sizes)
        neurons = 4 * largest * (_NEURONS_AT_ONCE + kept * _NEURONS_KEPT)
        return num_rows * num_tokens * (neurons + states)

    return LessonSize(num_parameters=num_parameters, part_bytes=part_bytes)


def weight_size(
    layer_map: LayerMap, teacher: ModelSpec, sides: dict[str, tuple[int, int]]
) -> LessonSize:
    """Returns what the comparison of weights takes (weights.py), from the sizes of its maps."""
    matrices = sum(
        rows * columns
        for index in range(layer_map.num_student_layers)
        for rows, columns in teacher.linear_shapes(layer_map.inner(index)).values()
    )

    def part_bytes(num_rows: int, num_tokens: int, recomputes: bool) -> int:
        return 4 * _MATRICES * matrices

    num_parameters = sum(taught * own for taught, own in sides.values())
    return LessonSize(num_parameters=num_parameters, part_bytes=part_bytes)


def gradient_size(student: ModelSpec, teacher: ModelSpec) -> LessonSize:
    """Returns what gradients of gradients take (gradients.py)."""

    def part_bytes(num_rows: int, num_tokens: int, recomputes: bool) -> int:
        # The teacher's values have gone when the student runs.
        kept = max(
            sum(
                _double_bytes(layer, spec.hidden_size, num_rows, num_tokens)
                for layer in spec.layers
            )
            // divisor
            for spec, divisor in ((student, 1), (teacher, 2))
        )
        logits = 4 * _DOUBLE_LOGITS * num_rows * num_tokens * student.vocab_size
        return kept + logits

    num_parameters = student.hidden_size * teacher.hidden_size
    return LessonSize(num_parameters=num_parameters, part_bytes=part_bytes)


def _double_bytes(layer: LayerSpec, hidden_size: int, num_rows: int, num_tokens: int) -> int:
    outputs = sum(rows for rows, _ in layer.active_shapes(hidden_size).values())
    each = (
        _DOUBLE_SCORES * layer.attention.num_heads * num_tokens
        + _DOUBLE_STATES * hidden_size
        + _DOUBLE_OUTPUTS * outputs
    )
    return 4 * num_rows * num_tokens * each
