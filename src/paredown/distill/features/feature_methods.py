"""The ways to learn from features, by the names that people type. Each lowers a loss of logits,
too."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor

from paredown.distill.features.boundaries import Boundaries, num_neurons
from paredown.distill.features.feature_objective import FeatureObjective
from paredown.distill.features.feature_size import (
    boundary_size,
    gradient_size,
    tinybert_size,
    weight_size,
)
from paredown.distill.features.fitted_projection import fitted_projection
from paredown.distill.features.gradients import GradientObjective
from paredown.distill.features.layer_map import Inside, LayerMap
from paredown.distill.features.prediction import prediction_for
from paredown.distill.features.projection import check_not_wider, new_projection
from paredown.distill.features.tinybert import TinyBERT
from paredown.distill.features.weights import WeightObjective, side_sizes
from paredown.distill.lesson_size import LessonSize
from paredown.distill.losses.token_loss import TokenLoss
from paredown.distill.objective import LogitObjective, Objective
from paredown.distill.rows import BatchRows
from paredown.distill.teacher import DecoderTeacher
from paredown.models.decoder.decoder import Decoder
from paredown.spec.model import ModelSpec


@dataclass(frozen=True, kw_only=True)
class FeatureSetting:
    """Holds what a loss of features is made from. `weight` is that of features beside `text_loss`,
    `seed` that of the learned maps; `rows` are the text that is learned from."""

    student: Decoder
    teacher: DecoderTeacher
    text_loss: TokenLoss
    weight: float
    inside: Inside
    seed: int
    rows: BatchRows

    @property
    def layer_map(self) -> LayerMap:
        return LayerMap.of(self.student.spec, self.teacher.decoder.spec, self.inside)


# What is lowered, and the parameters that are trained for it beside the student's.
Lowered = tuple[Objective, Mapping[str, Tensor]]


@dataclass(frozen=True, kw_only=True)
class FeatureMethod:
    """`size` returns the memory that it takes for a student and a teacher. It raises
    UnsupportedError where the two cannot be compared. `suits_encoders` says that it needs no
    predicted tokens."""

    summary: str
    size: Callable[[ModelSpec, ModelSpec, Inside], LessonSize]
    make: Callable[[FeatureSetting], Lowered]
    suits_encoders: bool = False


def _check_sizes(student: ModelSpec, teacher: ModelSpec, inside: Inside) -> LayerMap:
    layer_map = LayerMap.of(student, teacher, inside)
    check_not_wider("columns of hidden states", student.hidden_size, teacher.hidden_size)
    return layer_map


def _tinybert_size(student: ModelSpec, teacher: ModelSpec, inside: Inside) -> LessonSize:
    layer_map = _check_sizes(student, teacher, inside)
    for index, layer in enumerate(student.layers):
        taught = teacher.layers[layer_map.inner(index)]
        check_not_wider("heads", layer.attention.num_heads, taught.attention.num_heads)
    return tinybert_size(student, teacher)


def _tinybert(setting: FeatureSetting) -> Lowered:
    num_layers = setting.student.spec.num_layers
    teacher = setting.teacher
    projection_ED = fitted_projection(
        setting.student, teacher.decoder, setting.layer_map, setting.rows, teacher.arithmetic
    )
    features = TinyBERT(num_layers=num_layers, projection_ED=projection_ED)
    return _beside_logits(setting, features)


def _boundary_sizes(
    student: ModelSpec, teacher: ModelSpec, inside: Inside
) -> tuple[tuple[int, int], ...]:
    """Returns the teacher's and the student's neurons of each layer."""
    layer_map = LayerMap.of(student, teacher, inside)
    sizes = tuple(
        (num_neurons(teacher.layers[layer_map.inner(index)]), num_neurons(layer))
        for index, layer in enumerate(student.layers)
    )
    for num_taught, num_own in sizes:
        check_not_wider("neurons", num_own, num_taught)
    return sizes


def _boundary_size(student: ModelSpec, teacher: ModelSpec, inside: Inside) -> LessonSize:
    return boundary_size(student, teacher, _boundary_sizes(student, teacher, inside))


def _boundaries(setting: FeatureSetting) -> Lowered:
    sizes = _boundary_sizes(setting.student.spec, setting.teacher.decoder.spec, setting.inside)
    maps = [new_projection(*pair, setting.seed + index) for index, pair in enumerate(sizes)]
    return _beside_logits(setting, Boundaries(maps_GF=maps))


def _beside_logits(setting: FeatureSetting, features: TinyBERT | Boundaries) -> Lowered:
    objective = FeatureObjective(
        teacher=setting.teacher,
        prediction=prediction_for(setting.student, setting.text_loss, setting.teacher),
        features=features,
        weight=setting.weight,
        layer_map=setting.layer_map,
    )
    return objective, features.parameters


def _weight_size(student: ModelSpec, teacher: ModelSpec, inside: Inside) -> LessonSize:
    layer_map = LayerMap.of(student, teacher, inside)
    return weight_size(layer_map, teacher, side_sizes(student, teacher, inside))


def _weights(setting: FeatureSetting) -> Lowered:
    sizes = side_sizes(setting.student.spec, setting.teacher.decoder.spec, setting.inside)
    objective = WeightObjective(
        logits=LogitObjective(loss=setting.text_loss, teacher=setting.teacher),
        teacher=setting.teacher.decoder,
        maps={
            side: new_projection(*pair, setting.seed + number)
            for number, (side, pair) in enumerate(sizes.items())
        },
        weight=setting.weight,
        layer_map=setting.layer_map,
    )
    return objective, objective.parameters


def _gradient_size(student: ModelSpec, teacher: ModelSpec, inside: Inside) -> LessonSize:
    _check_sizes(student, teacher, inside)
    return gradient_size(student, teacher)


def _gradients(setting: FeatureSetting) -> Lowered:
    taught, own = (one.spec.hidden_size for one in (setting.teacher.decoder, setting.student))
    objective = GradientObjective(
        teacher=setting.teacher,
        text_loss=setting.text_loss,
        projection_ED=new_projection(taught, own, setting.seed),
        weight=setting.weight,
        layer_map=setting.layer_map,
    )
    return objective, objective.parameters


FEATURE_METHODS: dict[str, FeatureMethod] = {
    "tinybert": FeatureMethod(
        summary="soft-label, and the teacher's attention and hidden states",
        size=_tinybert_size,
        make=_tinybert,
        suits_encoders=True,
    ),
    "weights": FeatureMethod(
        summary="soft-label, and the teacher's weights through learned maps",
        size=_weight_size,
        make=_weights,
    ),
    "gradients": FeatureMethod(
        summary="soft-label, and the teacher's gradients of hidden states",
        size=_gradient_size,
        make=_gradients,
    ),
    "boundaries": FeatureMethod(
        summary="soft-label, and which neurons the teacher's tokens switch on",
        size=_boundary_size,
        make=_boundaries,
        suits_encoders=True,
    ),
}
