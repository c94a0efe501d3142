"""Texts, samples and times that the measurements of distillation use."""

import lzma
from pathlib import Path

import pytest
import torch

from benchmarks.distill import held_out_prompts, own_texts
from benchmarks.distill.codes import Codes, measure_codes, without_training
from benchmarks.distill.held_out_prompts import one_pass
from benchmarks.distill.own_texts import OwnTexts, own_reverse_kl
from benchmarks.distill.reward import (
    RewardRun,
    ends_in_full_stop,
    measure_reward,
    measured,
    sentences,
)
from benchmarks.distill.throughput import NAMES, OURS, ours, rate_of, summed_up, trainer
from benchmarks.kept_models import KeptModels
from drivers.shared_data import VARIABLE
from fakes.small_tokenizers import byte_level
from fakes.tiny_models import make_model
from paredown.compress.recipe_names import find_recipe

WORDS = "the cat sat on the mat and the dog lay on the rug"
TEXT = "".join(f"{WORDS} {number}. " for number in range(200))
TEXTS = OwnTexts(num_prompts=4, prompt_tokens=8, new_tokens=6)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "model"
    make_model("llama", torch.float32, 4).save_pretrained(folder)
    byte_level().save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    books = tmp_path / "text" / "classic-books"
    books.mkdir(parents=True)
    (books / "test.txt").write_text(TEXT)
    (books / "train.txt.xz").write_bytes(lzma.compress(TEXT.encode()))
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    return tmp_path


def test_prompts_begin_windows_of_the_test_split(model: Path, data: Path) -> None:
    prompts = held_out_prompts.held_out_prompts(model, 4, 8)
    assert (prompts.num_prompts, prompts.num_tokens) == (4, 8)
    sampling, num_steps = one_pass(model, prompts, 6)
    assert (sampling.num_prompts * num_steps, sampling.max_new_tokens) == (4, 6)


def test_without_the_texts_it_says_so(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(SystemExit, match=VARIABLE):
        held_out_prompts.held_out_prompts(model, 4, 8)


def test_a_model_does_not_diverge_from_itself(
    model: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_texts, "choose_arithmetic", lambda device: "fp32")
    monkeypatch.setattr(held_out_prompts, "choose_arithmetic", lambda device: "fp32")
    assert own_reverse_kl(str(model), model, TEXTS) == pytest.approx(0.0, abs=1e-5)


def test_answers_are_scored_by_their_last_character() -> None:
    assert [ends_in_full_stop("x.", answer) for answer in ("a.", "a. ", "", "a")] == [1, 0, 0, 0]


def test_sentences_go_on_after_their_first_words() -> None:
    words = [str(number) for number in range(14)]
    text = f"{' '.join(words)}. Too short. {' '.join(words[:13])}\n13. End"
    assert sentences(text) == [(" ".join(words[:12]), " 12 13.")] * 2


def reward_run(model: Path, num_prompts: int) -> RewardRun:
    return RewardRun(
        model=str(model),
        num_tokens=4 * 44 * 4,
        batch_tokens=4 * 44,
        learning_rate=1e-3,
        kl_weight=0.1,
        warm_share=0.5,
        num_prompts=num_prompts,
        num_sentences=20,
        new_tokens=12,
    )


def test_a_reward_is_learned_alone_and_after_cross_entropy(
    model: Path, data: Path, tmp_path: Path
) -> None:
    found = measure_reward(reward_run(model, 6), KeptModels(path=tmp_path / "models"))
    assert list(found) == ["as it starts", "reward", "cross-entropy, reward"]
    assert found["as it starts"]["kl_a_token"] < found["reward"]["kl_a_token"]
    (alone,), (warmed,) = (
        [note for note in found[name]["notes"] if "steps with rewards" in note]
        for name in ("reward", "cross-entropy, reward")
    )
    assert "of 4 steps with rewards" in alone
    assert "of 2 steps with rewards" in warmed


def test_a_student_is_measured_on_the_prompts_that_are_given(model: Path, tmp_path: Path) -> None:
    texts = tmp_path / "texts.jsonl"
    texts.write_text("".join(f'{{"prompt": "{c}", "completion": "b."}}\n' for c in "uvwxyz"))
    run = reward_run(model, num_prompts=5)
    found = measured(model, model, run, texts)
    assert found["share"] in [count / 5 for count in range(6)]
    assert found["kl_a_token"] == pytest.approx(0.0, abs=0.01)


def test_the_first_step_does_not_count() -> None:
    assert rate_of([5.0, 6.0, 9.0], 100) == 50.0


def test_ratios_are_those_within_a_round() -> None:
    other = {name: [1.0, 4.0, 2.0] for name in NAMES if name != OURS}
    found = summed_up({OURS: [2.0, 2.0, 6.0], **other})
    assert found[OURS]["tokens_per_s"] == 2.0
    assert found["trainer-rows"]["ours_over_it"] == 2.0
    assert found["trainer-rows"]["tokens_per_s"] == 2.0


def test_ours_tells_when_each_step_ended(model: Path, data: Path, tmp_path: Path) -> None:
    ends_s = ours(model, 1024, 2, tmp_path)
    assert len(ends_s) == 2
    assert 0 < ends_s[0] < ends_s[1]


@pytest.mark.parametrize("by_rows", [True, False])
def test_the_trainer_tells_when_each_step_ended(
    by_rows: bool, model: Path, data: Path, tmp_path: Path
) -> None:
    ends_s = trainer(model, 1024, 2, tmp_path, by_rows=by_rows)
    assert len(ends_s) == 2
    assert ends_s[0] < ends_s[1]


def test_what_is_quantized_alike_begins_with_the_same_folder() -> None:
    names = ("gptq-int3-g64", "gptq-int3-g64-scales-5m", "qad-int3-g64", "gptq-int4-g64")
    starts = [without_training(find_recipe(name)).name for name in names]
    assert starts[0] == starts[1] == starts[2] != starts[3]


def test_codes_are_quantized_once_and_measured_together(
    model: Path, data: Path, tmp_path: Path
) -> None:
    codes = Codes(model=str(model), num_windows=4, num_text_tokens=64, train_device="cpu")
    models = KeptModels(path=tmp_path / "models")
    found = measure_codes(codes, ["int4-g32", "qad-rtn-int4-g32-2048"], models)
    assert [path.name for path in models.path.glob("quantized-*") if path.is_dir()] == [
        without_training(find_recipe("int4-g32")).name
    ]
    before, after = found.values()
    assert 0 < before["kl"] < 1
    assert 0 < after["kl"] < 1
    assert after["num_tokens"] == 2048
    assert len(after["losses"]) == 2
