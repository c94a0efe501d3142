"""Objectives of features: they are their formulas in any parts, no hidden place reaches them, and
models of other shapes are taught or refused (D01, D05, D13)."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from drivers.tiny_sampling import load_student, load_teacher, write_llama
from drivers.tiny_training import random_rows, uneven_rows
from fakes.tiny_models import VARIANTS
from paredown.distill.batch import Batch
from paredown.distill.features.feature_methods import FEATURE_METHODS, FeatureSetting, Lowered
from paredown.distill.losses.kl import KL
from paredown.distill.objective import LogitObjective, Objective
from paredown.distill.teacher import DecoderTeacher
from paredown.errors import UnsupportedError
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder

WIDE = {"num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2}
# Fewer layers, columns, heads and neurons, and tables of its own.
NARROW = {
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "tie_word_embeddings": False,
}
LIKE = {"num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 2}
NAMES = list(FEATURE_METHODS)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    shapes = {"teacher": WIDE | {"tie_word_embeddings": True}, "narrow": NARROW, "like": LIKE}
    return {
        name: write_llama(tmp_path_factory.mktemp(name), seed, **changes)
        for seed, (name, changes) in enumerate(shapes.items())
    }


@pytest.fixture(scope="module")
def teacher(folders: dict[str, Path]) -> DecoderTeacher:
    return load_teacher(folders["teacher"])


def students(folders: dict[str, Path]) -> dict[str, Decoder]:
    return {name: load_student(folders[name]) for name in ("narrow", "like")}


def made(name: str, student: Decoder, teacher: DecoderTeacher, weight: float = 0.7) -> Lowered:
    return FEATURE_METHODS[name].make(
        FeatureSetting(
            student=student,
            teacher=teacher,
            text_loss=KL(),
            weight=weight,
            inside="first",
            seed=0,
            rows=random_rows(4, 12),
        )
    )


def losses(
    objective: Objective,
    parameters: dict[str, Tensor],
    batch: Batch,
    student: Decoder,
    *,
    recomputes: bool = False,
) -> list[Tensor]:
    """The loss, and its gradients of all parameters."""
    trained = [*student.parameters(), *parameters.values()]
    for one in trained:
        one.requires_grad_(True)
    total = objective.total(student, batch, "fp32", recomputes=recomputes)
    return [
        total.detach(),
        *torch.autograd.grad(total, trained, allow_unused=True, materialize_grads=True),
    ]


def found(name: str, student: Decoder, teacher: DecoderTeacher, batch: Batch) -> list[Tensor]:
    objective, parameters = made(name, student, teacher)
    return losses(objective, dict(parameters), batch, student)


@pytest.fixture
def batch() -> Batch:
    return uneven_rows([1, 9, 3], 12).batch(torch.arange(3).numpy())


@pytest.mark.parametrize("kind", ["narrow", "like"])
@pytest.mark.parametrize("name", NAMES)
def test_a_step_is_the_same_in_any_parts(
    name: str, kind: str, folders: dict[str, Path], teacher: DecoderTeacher, batch: Batch
) -> None:
    student = students(folders)[kind]
    whole = found(name, student, teacher, batch)
    parts = [found(name, student, teacher, part) for part in batch.split(1)]
    assert any(one.abs().max() > 0 for one in whole[-1:])
    for one, *others in zip(whole, *parts, strict=True):
        torch.testing.assert_close(torch.stack(others).sum(0), one, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_layers_that_run_twice_give_the_same(
    name: str, folders: dict[str, Path], teacher: DecoderTeacher, batch: Batch
) -> None:
    student = students(folders)["narrow"]
    objective, parameters = made(name, student, teacher)
    pair = (
        losses(objective, dict(parameters), batch, student, recomputes=recomputes)
        for recomputes in (False, True)
    )
    for one, other in zip(*pair, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_places_that_are_no_targets_cannot_be_seen(
    name: str, folders: dict[str, Path], teacher: DecoderTeacher, batch: Batch
) -> None:
    """Other tokens after the last target of a row."""
    student = students(folders)["narrow"]
    places_T = torch.arange(batch.inputs_BT.shape[1])
    is_after_BT = places_T > torch.where(batch.is_target_BT, places_T, 0).max(1).values[:, None]
    assert is_after_BT.any()
    other = replace(
        batch,
        inputs_BT=torch.where(is_after_BT, 7, batch.inputs_BT),
        targets_BT=torch.where(is_after_BT, 8, batch.targets_BT),
    )
    pair = (found(name, student, teacher, one) for one in (batch, other))
    for one, two in zip(*pair, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_texts_of_a_row_do_not_see_each_other(
    name: str, folders: dict[str, Path], teacher: DecoderTeacher
) -> None:
    student = students(folders)["narrow"]
    random = torch.Generator().manual_seed(3)
    tokens_BT = torch.randint(0, 300, (2, 6), generator=random)
    packed = Batch(
        inputs_BT=tokens_BT.reshape(1, 12),
        targets_BT=tokens_BT.reshape(1, 12),
        is_target_BT=torch.ones(1, 12).bool(),
        texts_BT=torch.arange(2).repeat_interleave(6)[None],
    )
    alone = Batch(inputs_BT=tokens_BT, targets_BT=tokens_BT, is_target_BT=torch.ones(2, 6).bool())
    pair = (found(name, student, teacher, one) for one in (packed, alone))
    for one, two in zip(*pair, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_no_weight_leaves_the_logits_alone(
    name: str, folders: dict[str, Path], teacher: DecoderTeacher, batch: Batch
) -> None:
    student = students(folders)["narrow"]
    objective, _ = made(name, student, teacher, weight=0.0)
    logits = LogitObjective(loss=KL(), teacher=teacher)
    pair = (one.total(student, batch, "fp32", recomputes=False) for one in (objective, logits))
    torch.testing.assert_close(*pair, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("name", ["tinybert", "gradients", "weights"])
def test_a_student_like_its_teacher_has_nothing_to_learn(
    name: str, folders: dict[str, Path], teacher: DecoderTeacher, batch: Batch
) -> None:
    student = load_student(folders["teacher"])
    loss, *gradients = found(name, student, teacher, batch)
    assert loss < 1e-6
    assert max(one.abs().max() for one in gradients) < 1e-3


def test_the_features_of_a_step_are_those_of_plain_runs(
    folders: dict[str, Path], teacher: DecoderTeacher, batch: Batch
) -> None:
    """Hidden states, seen by hooks, and projected."""
    student = students(folders)["narrow"]
    states = [hooked(one, batch) for one in (student, teacher.decoder)]
    without, with_features = (
        made("tinybert", student, teacher, weight)[0] for weight in (0.0, 1.0)
    )
    features = getattr(with_features, "features")  # noqa: B009
    features.projection_ED.zero_()
    # A projection of nothing leaves the teacher's states, so each place costs 1 in all.
    totals = [
        one.total(student, batch, "fp32", recomputes=False) for one in (without, with_features)
    ]
    scores = totals[1] - totals[0] - batch.num_targets
    features.projection_ED.normal_(generator=torch.Generator().manual_seed(1))
    total = with_features.total(student, batch, "fp32", recomputes=False)
    expected = torch.zeros(())
    for own_BTD, taught_BTE in zip(states[0], [states[1][n] for n in (0, 2, 4)], strict=True):
        made_BTE = own_BTD @ features.projection_ED.T
        each_BT = (made_BTE - taught_BTE).square().sum(-1) / taught_BTE.square().sum(-1)
        expected = expected + each_BT[batch.is_target_BT].sum() / 3
    torch.testing.assert_close(total - totals[0] - scores, expected, rtol=1e-3, atol=1e-3)
    assert scores > 0


def hooked(decoder: Decoder, batch: Batch) -> list[Tensor]:
    seen: list[Tensor] = []

    def keep(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        seen.append(output)

    handles = [layer.register_forward_hook(keep) for layer in decoder.layers]
    with torch.no_grad():
        x_BTD = decoder.embed(batch.inputs_BT)
        decoder(batch.inputs_BT)
    for handle in handles:
        handle.remove()
    return [x_BTD, *seen]


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_of_small_changes(
    name: str, folders: dict[str, Path], teacher: DecoderTeacher
) -> None:
    """In float64, along one direction of all that is trained."""
    student = load_student(folders["narrow"]).double()
    taught = DecoderTeacher(decoder=load_student(folders["teacher"]).double(), arithmetic="fp32")
    objective, parameters = made(name, student, taught)
    batch = uneven_rows([2, 3], 5).batch(torch.arange(2).numpy())
    trained = [*student.parameters(), *parameters.values()]
    for one in parameters.values():
        one.data = one.data.double()
    _, *gradients = losses(objective, dict(parameters), batch, student)
    random = torch.Generator().manual_seed(2)
    direction = [torch.randn(one.shape, generator=random).double() for one in trained]

    def moved(length: float) -> float:
        with torch.no_grad():
            for one, way in zip(trained, direction, strict=True):
                one.add_(length * way)
            total = objective.total(student, batch, "fp32", recomputes=False).item()
            for one, way in zip(trained, direction, strict=True):
                one.add_(-length * way)
        return total

    expected = (moved(1e-6) - moved(-1e-6)) / 2e-6
    slope = sum((a * b).sum().item() for a, b in zip(gradients, direction, strict=True))
    assert slope == pytest.approx(expected, rel=2e-4)


REFUSED: list[tuple[str, dict[str, object], str]] = [
    ("tinybert", {"num_hidden_layers": 5}, "deeper"),
    ("weights", {"num_hidden_layers": 5}, "deeper"),
    ("gradients", {"num_hidden_layers": 5}, "deeper"),
    ("boundaries", {"num_hidden_layers": 5}, "deeper"),
    ("tinybert", {"hidden_size": 128}, "more columns"),
    ("weights", {"hidden_size": 128}, "more columns"),
    ("gradients", {"hidden_size": 128}, "more columns"),
    ("tinybert", {"num_attention_heads": 16, "num_key_value_heads": 2}, "more heads"),
    ("boundaries", {"intermediate_size": 128}, "more neurons"),
    ("weights", {"intermediate_size": 128}, "more columns of neurons"),
]


@pytest.mark.parametrize(("name", "changes", "says"), REFUSED)
def test_a_student_that_is_larger_is_refused(
    name: str,
    changes: dict[str, object],
    says: str,
    folders: dict[str, Path],
    tmp_path: Path,
) -> None:
    teacher = Checkpoint.open(folders["teacher"]).spec
    student = Checkpoint.open(write_llama(tmp_path, 7, **(LIKE | changes))).spec
    with pytest.raises(UnsupportedError, match=says):
        FEATURE_METHODS[name].size(student, teacher, "first")


def test_experts_have_no_neurons_to_compare(folders: dict[str, Path], tmp_path: Path) -> None:
    VARIANTS["mixtral"](tmp_path, torch.float32, 1)
    spec = Checkpoint.open(tmp_path).spec
    with pytest.raises(UnsupportedError, match="experts"):
        FEATURE_METHODS["boundaries"].size(spec, spec, "first")
    teacher = Checkpoint.open(folders["teacher"]).spec
    with pytest.raises(UnsupportedError, match="same matrices"):
        FEATURE_METHODS["weights"].size(spec, teacher, "first")
    assert FEATURE_METHODS["weights"].size(spec, spec, "first").num_parameters > 0
