"""On-policy methods in the one training loop: what they lower falls, a stopped run goes on to the
same bits, and a failing reward loses nothing (D09)."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from drivers.tiny_sampling import load_student, load_teacher, prompts_of, sampling_of, write_llama
from drivers.tiny_training import WHOLE, config, random_rows
from paredown.distill.batch_source import BatchSource
from paredown.distill.losses.jsd import JSD
from paredown.distill.objective import LogitObjective, Objective
from paredown.distill.on_policy.minillm import MiniLLMBatches, minillm_objective
from paredown.distill.on_policy.mixed_batches import MixedBatches
from paredown.distill.on_policy.own_divergence import own_divergence
from paredown.distill.on_policy.policy_objective import PolicyObjective
from paredown.distill.on_policy.reward import CallableReward
from paredown.distill.on_policy.reward_batches import RewardBatches
from paredown.distill.on_policy.staged_batches import StagedBatches
from paredown.distill.on_policy.student_batches import StudentBatches
from paredown.distill.recover import trained_parameters
from paredown.distill.row_batches import RowBatches
from paredown.distill.run_log import StepRecord
from paredown.distill.teacher import DecoderTeacher
from paredown.distill.train_config import TrainConfig
from paredown.distill.trainer import Training, TrainResult, train
from paredown.distill.training_folder import TrainingFolder, open_training_folder
from paredown.errors import ConfigError, TrainingError
from paredown.models.decoder.decoder import Decoder

PROMPTS = prompts_of([4, 6, 2, 5, 3, 4])
GOOD = frozenset(range(100))


@dataclass(frozen=True, kw_only=True)
class Models:
    student: Path
    teacher: DecoderTeacher


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    """Both models are less sure than a random one, so that each can learn from the other."""
    calm = {"initializer_range": 0.1}
    return Models(
        student=write_llama(tmp_path_factory.mktemp("student"), 4, **calm),
        teacher=load_teacher(write_llama(tmp_path_factory.mktemp("teacher"), 9, **calm)),
    )


def share_of_good(prompt: str, answer: str) -> float:
    tokens = [int(one) for one in answer.split()]
    return sum(one in GOOD for one in tokens) / len(tokens)


def words(ids: Sequence[int]) -> str:
    return " ".join(str(one) for one in ids)


def gkd(models: Models) -> tuple[BatchSource, Objective]:
    sampling = sampling_of(PROMPTS, 6, num_prompts=4)
    given = RowBatches(rows=random_rows(6, 12), num_rows=4, seed=0)
    source = MixedBatches(sampled=StudentBatches(sampling=sampling), given=given)
    return source, LogitObjective(loss=JSD(beta=0.9), teacher=models.teacher)


def minillm(models: Models) -> tuple[BatchSource, Objective]:
    sampling = sampling_of(PROMPTS, 6, num_prompts=4, stop_ids=frozenset(range(0, 300, 9)))
    source = MiniLLMBatches(sampling=sampling, teacher=models.teacher)
    return source, minillm_objective(models.teacher)


def reward(models: Models) -> tuple[BatchSource, Objective]:
    """After two steps of cross-entropy."""
    sampling = sampling_of(PROMPTS, 6, num_prompts=2, num_each=4)
    source = RewardBatches(
        sampling=sampling, reward=CallableReward(function=share_of_good), decode=words
    )
    text = RowBatches(rows=random_rows(6, 12), num_rows=4, seed=0)
    objective = PolicyObjective(kl_weight=0.05, teacher=models.teacher)
    return StagedBatches(first=text, num_first_steps=2, then=source), objective


METHODS = {"gkd": gkd, "minillm": minillm, "reward": reward}


def run(
    models: Models,
    parts: tuple[BatchSource, Objective],
    options: TrainConfig,
    folder: TrainingFolder | None = None,
    on_progress: Callable[[str, float], None] | None = None,
) -> tuple[Decoder, TrainResult]:
    student = load_student(models.student)
    parameters = trained_parameters(student, trains_tables=True)
    training = Training(student=student, parameters=parameters, source=parts[0], objective=parts[1])
    return student, train(training, options, WHOLE, folder, on_progress)


def steps(source: BatchSource, count: int, **changes: object) -> TrainConfig:
    return config(count * source.step_tokens, **changes)


@pytest.mark.parametrize("method", METHODS)
def test_a_stopped_run_ends_in_the_same_bits(method: str, models: Models, tmp_path: Path) -> None:
    """Seven steps, saved after each and stopped before the fifth."""
    source, objective = METHODS[method](models)
    options = steps(source, 7, save_every_s=0.0, learning_rate=1e-2)
    whole, told = run(models, (source, objective), options)

    def stop(what: str, progress: float) -> None:
        if progress >= 4 / 7:
            raise KeyboardInterrupt

    with suppress(KeyboardInterrupt), open_training_folder(tmp_path / "work", "x") as folder:
        run(models, (source, objective), options, folder, stop)
    with open_training_folder(tmp_path / "work", "x") as folder:
        resumed, again = run(models, (source, objective), options, folder)
    assert again.num_resumed_steps == 4
    assert untimed(told) == untimed(again)
    for one, other in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert (one == other).all()


def untimed(result: TrainResult) -> list[StepRecord]:
    return [replace(record, elapsed_s=0.0) for record in result.records]


@pytest.mark.parametrize("method", ["gkd", "minillm"])
def test_the_divergence_on_the_students_own_texts_falls(method: str, models: Models) -> None:
    source, objective = METHODS[method](models)
    options = steps(source, 40, learning_rate=1e-2, final_learning_rate=1e-3)
    trained, _ = run(models, (source, objective), options)
    measured = sampling_of(PROMPTS, 6, num_each=8, seed=77)
    before, after = (
        own_divergence(student, models.teacher, measured, 1)
        for student in (load_student(models.student), trained)
    )
    assert after < 0.7 * before


def test_a_reward_rises(models: Models) -> None:
    told = list[float]()
    sampling = sampling_of(PROMPTS, 6, num_prompts=4, num_each=4)
    source = RewardBatches(
        sampling=sampling,
        reward=CallableReward(function=share_of_good),
        decode=words,
        on_rewards=lambda step, rewards: told.append(sum(rewards) / len(rewards)),
    )
    objective = PolicyObjective(kl_weight=0.0)
    run(models, (source, objective), steps(source, 30, learning_rate=1e-2))
    assert sum(told[-3:]) / 3 > sum(told[:3]) / 3 + 0.3


def test_a_failing_reward_keeps_the_steps_before_it(models: Models, tmp_path: Path) -> None:
    """It fails at the fourth step, and works again when the run goes on."""
    calls = [0]

    def broken(prompt: str, answer: str) -> float:
        calls[0] += 1
        if calls[0] == 3 * 8 + 1:
            raise ConnectionError("gone")
        return share_of_good(prompt, answer)

    sampling = sampling_of(PROMPTS, 6, num_prompts=2, num_each=4)
    source = RewardBatches(sampling=sampling, reward=CallableReward(function=broken), decode=words)
    parts = source, PolicyObjective(kl_weight=0.0)
    options = steps(source, 6)
    with (
        pytest.raises(TrainingError, match="ConnectionError: gone"),
        open_training_folder(tmp_path / "work", "x") as folder,
    ):
        run(models, parts, options, folder)
    with open_training_folder(tmp_path / "work", "x") as folder:
        resumed, told = run(models, parts, options, folder)
    assert told.num_resumed_steps == 3
    whole, expected = run(models, parts, options)
    assert untimed(told) == untimed(expected)
    for one, other in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert (one == other).all()


def test_the_teachers_own_text_needs_a_teacher(models: Models) -> None:
    sampling = sampling_of(PROMPTS, 6)
    with pytest.raises(ConfigError, match="needs one"):
        StudentBatches(sampling=sampling, teacher_share=0.5)
    with pytest.raises(ConfigError, match="out of range"):
        StudentBatches(sampling=sampling, teacher=models.teacher, teacher_share=1.5)
    source = StudentBatches(sampling=sampling, teacher=models.teacher, teacher_share=1.0)
    student = load_student(models.student)
    taught = StudentBatches(sampling=sampling).batch(0, models.teacher.decoder)
    assert source.batch(0, student).targets().tolist() == taught.targets().tolist()
