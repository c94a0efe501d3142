"""What suits the reward and the text is chosen, and why is told."""

from pathlib import Path

import pytest
import torch

from fakes.small_tokenizers import byte_level
from fakes.tiny_models import make_model
from paredown.distill.data.training_data import TrainingDataConfig
from paredown.distill.distill import DistillConfig, Pair
from paredown.distill.methods import MethodOptions
from paredown.distill.train_config import TrainConfig
from paredown.errors import ConfigError
from paredown.jobs.distillation_method import choose_method
from paredown.models.checkpoint import Checkpoint

TRAIN = TrainConfig(num_tokens=1000)
TEXT = TrainingDataConfig(paths=(Path("a.txt"),))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("model")
    make_model("llama", torch.bfloat16, 4).save_pretrained(folder)
    byte_level().save(str(folder / "tokenizer.json"))
    return Checkpoint.open(folder)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("other")
    make_model("llama", torch.bfloat16, 4, vocab_size=320).save_pretrained(folder)
    byte_level().save(str(folder / "tokenizer.json"))
    return Checkpoint.open(folder)


def chosen(student: Checkpoint, teacher: Checkpoint, **changes: object) -> tuple[str, str]:
    config = DistillConfig(train=TRAIN, method="auto", **changes)  # type: ignore[arg-type]
    found, (why,) = choose_method(Pair(student=student, teacher=teacher), config)
    return found.method, why


def test_a_reward_goes_first(model: Checkpoint) -> None:
    options = MethodOptions(reward="drivers.full_stop:score")
    assert chosen(model, model, options=options, data=TEXT) == (
        "reward",
        "auto chose reward: a reward was given",
    )


def test_a_teacher_of_other_words_says_nothing(model: Checkpoint, other: Checkpoint) -> None:
    method, why = chosen(model, other, data=TEXT)
    assert method == "hard-label"
    assert "vocabularies of different sizes" in why


def test_a_text_of_ones_own_is_learned_beside_the_teacher(model: Checkpoint) -> None:
    assert chosen(model, model, data=TEXT)[0] == "slim"


def test_what_the_teacher_samples_has_its_labels(
    model: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PAREDOWN_DATA", raising=False)
    method, why = chosen(model, model)
    assert method == "hard-label"
    assert "samples all of the text" in why
    (tmp_path / "text").mkdir()
    monkeypatch.setenv("PAREDOWN_DATA", str(tmp_path))
    assert chosen(model, model)[0] == "hard-label"


def test_a_method_that_is_named_stays(model: Checkpoint) -> None:
    config = DistillConfig(train=TRAIN, method="kl")
    assert choose_method(Pair(student=model, teacher=model), config) == (config, ())


def test_a_reward_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="neither"):
        DistillConfig(train=TRAIN, method="auto", options=MethodOptions(reward="nonsense"))
