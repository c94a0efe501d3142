"""A student is trained, proved and written in one go; what cannot work is told before any work, and
what was stopped goes on (D05, D07, D09)."""

import json
import math
import os
import shutil
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from drivers.peer_distillation import distill_as_peer
from drivers.stored_fingerprint import read_fingerprint
from drivers.tiny_training import config
from fakes.small_tokenizers import byte_level
from fakes.tiny_models import make_model
from paredown.distill.data.training_data import TrainingDataConfig
from paredown.distill.distill import DistillConfig
from paredown.distill.features.feature_methods import FEATURE_METHODS
from paredown.distill.methods import METHODS, MethodOptions
from paredown.distill.teacher import DecoderTeacher
from paredown.distill.teacher_logits.teacher_logits import TeacherLogits
from paredown.distill.training_folder import training_path
from paredown.errors import CapacityError, ConfigError, OutputError, ParedownError, UnsupportedError
from paredown.evaluate.verify.verification_file import NAME
from paredown.jobs.distill import DistilledCheckpoint, distill_and_verify
from paredown.jobs.stages import stages_path
from paredown.jobs.verify_config import VerifyConfig
from paredown.models.checkpoint import Checkpoint

TESTS = Path(__file__).parent.parent
FULL_STOP = "drivers.full_stop:score"
# Words of many lengths, so that steps have unlike numbers of targets.
LINES = [
    {"prompt": "p" * (number % 5), "completion": "ab" * (1 + number % 4) + str(number)}
    for number in range(60)
]


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "teacher"
    make_model("llama", torch.bfloat16, 4, num_hidden_layers=4).save_pretrained(folder)
    byte_level().save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "pairs.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    return path


@pytest.fixture
def text(tmp_path: Path) -> VerifyConfig:
    path = tmp_path / "text.txt"
    path.write_text("It was the best of times, it was the worst of times. " * 4)
    return VerifyConfig(text=path, num_tokens=100)


def settings(data: Path, **changes: object) -> DistillConfig:
    found = DistillConfig(
        train=config(20 * 64, batch_tokens=64, learning_rate=3e-3),
        data=TrainingDataConfig(paths=(data,), row_tokens=16, held_out=0.2),
    )
    return replace(found, **changes)  # type: ignore[arg-type]


def left_over(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"text.txt"}


def test_a_student_is_written_with_its_proof(
    teacher: Path, data: Path, text: VerifyConfig, tmp_path: Path
) -> None:
    made = distill_and_verify(teacher, tmp_path / "out", settings(data), verify=text, num_threads=1)
    student = Checkpoint.open(tmp_path / "out")
    assert student.kept_layers == (0, 2)
    assert left_over(tmp_path) == {"out"}
    assert read_fingerprint(tmp_path / "out") is not None
    proof = json.loads((tmp_path / "out" / NAME).read_text())
    assert proof["recipe"] == "soft-label of every-2"
    assert [one["layer"] for one in proof["layer_errors"]] == [0, 2]
    told = "\n".join(proof["notes"])
    for part in ("trained on 1,280 tokens", "on held-out text from", "before the training"):
        assert part in told
    said = json.loads(json.dumps(made.as_json()))
    assert said["verification"].items() <= proof.items()
    assert said["before"]["kl_divergence"] > said["verification"]["compressed"]["kl_divergence"]
    assert said["before"]["top1_agreement"] is not None
    assert len(said["held_out"]) == 11
    assert said["num_tokens"] == 1280


@pytest.mark.parametrize(
    ("student", "kept", "hidden"),
    [("width-50", None, 32), ("every-2+width-50", (0, 2), 32), ("shape.json", None, 96)],
)
def test_students_of_other_shapes_are_trained_and_proved(
    student: str,
    kept: tuple[int, ...] | None,
    hidden: int,
    teacher: Path,
    data: Path,
    text: VerifyConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    shape = json.loads((teacher / "config.json").read_text()) | {"hidden_size": 96}
    Path("shape.json").write_text(json.dumps(shape))
    asked = settings(data, student=student, train=config(6 * 64, batch_tokens=64))
    made = distill_and_verify(teacher, tmp_path / "out", asked, verify=text, num_threads=1)
    found = Checkpoint.open(tmp_path / "out")
    assert (found.kept_layers, found.spec.hidden_size) == (kept, hidden)
    assert made.verification is not None
    assert made.verification.layer_errors == []
    assert left_over(tmp_path) == {"out", "shape.json"}


def test_the_teacher_on_disk_teaches_as_the_one_that_runs(
    teacher: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = run_until(teacher, tmp_path / "live", settings(data))
    kept = TeacherLogits(folder=tmp_path / "logits", keep="whole")
    asked = settings(data, teacher_logits=kept)
    stored = run_until(teacher, tmp_path / "out", asked)
    monkeypatch.delattr(DecoderTeacher, "load")
    again = run_until(teacher, tmp_path / "again", asked)
    curves = [
        [one.loss for one in (*made.written.training.records, *made.written.training.judgements)]
        for made in (live, stored, again)
    ]
    assert curves[1] == pytest.approx(curves[0], rel=1e-5)
    assert curves[2] == curves[1]
    assert "learned from distributions of the teacher kept as whole" in stored.notes
    assert again.written.memory.teacher < live.written.memory.teacher
    weights = [(tmp_path / one / "model.safetensors").read_bytes() for one in ("out", "again")]
    assert weights[0] == weights[1]


def test_samples_on_disk_teach(teacher: Path, data: Path, tmp_path: Path) -> None:
    asked = settings(data, teacher_logits=TeacherLogits(folder=tmp_path / "logits"))
    training = run_until(teacher, tmp_path / "out", asked).written.training
    assert training.final_loss < 0.9 * training.records[0].loss


def test_a_run_goes_on_with_its_own_distributions_alone(
    teacher: Path, data: Path, tmp_path: Path
) -> None:
    kept = TeacherLogits(folder=tmp_path / "logits")
    found = settings(data, teacher_logits=kept)
    options = replace(found, train=replace(found.train, save_every_s=0.0))
    with pytest.raises(KeyboardInterrupt):
        run_until(teacher, tmp_path / "out", options, 0.5)
    shutil.copytree(tmp_path / ".out.training", tmp_path / ".other.training")
    resumed = run_until(teacher, tmp_path / "out", options)
    assert resumed.written.training.num_resumed_steps == 10
    other = replace(options, teacher_logits=TeacherLogits(folder=tmp_path / "top", keep="top-8"))
    anew = run_until(teacher, tmp_path / "other", other)
    assert anew.written.training.num_resumed_steps == 0


@pytest.mark.parametrize("method", ["hard-label", "gkd", "minillm"])
def test_methods_that_need_more_than_distributions_do_not_take_them(
    method: str, data: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=f"does not learn from stored.*{method}"):
        settings(data, method=method, teacher_logits=TeacherLogits(folder=tmp_path))


def test_distributions_that_do_not_fit_the_method_are_told(
    teacher: Path, data: Path, tmp_path: Path
) -> None:
    kept = TeacherLogits(folder=tmp_path / "logits")
    with pytest.raises(ConfigError, match="ReverseKL needs a probability of every token"):
        run_until(
            teacher, tmp_path / "out", settings(data, method="reverse-kl", teacher_logits=kept)
        )
    assert not left_over(tmp_path)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains(method: str, teacher: Path, data: Path, tmp_path: Path) -> None:
    options = MethodOptions(prompt_tokens=4, new_tokens=4, reward=FULL_STOP)
    asked = settings(data, method=method, options=options, train=config(6 * 64, batch_tokens=64))
    made = distill_and_verify(teacher, tmp_path / "out", asked, verify=None, num_threads=1)
    records = made.written.training.records
    assert len(records) == 6
    assert all(record.num_targets and record.gradient_norm > 0 for record in records)
    assert all(math.isfinite(one.loss) for one in made.written.training.judgements)
    assert Checkpoint.open(tmp_path / "out").kept_layers == (0, 2)


def test_answers_to_a_prompt_take_memory_where_they_are_compared(
    teacher: Path, data: Path, tmp_path: Path
) -> None:
    options = MethodOptions(prompt_tokens=4, new_tokens=4, reward=FULL_STOP, num_answers=10**9)
    asked = settings(data, options=options, train=config(64, batch_tokens=64))
    for method in ("gkd", "minillm"):
        output = tmp_path / method
        distill_and_verify(
            teacher, output, replace(asked, method=method), verify=None, num_threads=1
        )
    with pytest.raises(CapacityError, match="memory"):
        run_until(teacher, tmp_path / "out", replace(asked, method="reward"))


def test_two_processes_follow_the_curve_of_one(teacher: Path, data: Path, tmp_path: Path) -> None:
    """Here the two of them read the teacher from disk, where the first has written it."""
    one = distill_as_peer(teacher, data, tmp_path / "one")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    names = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    words = [sys.executable, "-m", "drivers.peer_distillation", teacher, data, tmp_path / "two"]
    words.append(tmp_path / "logits")
    running = [
        subprocess.Popen(
            words,
            env=os.environ | names | {"RANK": rank, "PYTHONPATH": str(TESTS)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in ("0", "1")
    ]
    first, second = (json.loads(process.communicate(timeout=200)[0]) for process in running)
    assert first == second
    losses = one["losses"]
    assert isinstance(losses, list)
    assert losses[-1] < 0.8 * losses[0]
    assert len(set(first["targets"])) > 1
    for name in ("losses", "norms", "judged", "targets"):
        assert first[name] == pytest.approx(one[name], rel=1e-5, abs=1e-5)
    assert left_over(tmp_path) == {"one", "two", "logits"}
    assert Checkpoint.open(tmp_path / "two").kept_layers == (0, 2)


def run_until(
    teacher: Path, output: Path, options: DistillConfig, share: float = 2.0
) -> DistilledCheckpoint:
    def stop(what: str, now: float) -> None:
        if what.startswith("training") and now >= share:
            raise KeyboardInterrupt

    return distill_and_verify(
        teacher, output, options, verify=None, num_threads=1, on_progress=stop
    )


@pytest.mark.parametrize("method", ["soft-label", "tinybert"])
def test_a_stopped_run_ends_in_the_same_bytes(
    method: str, teacher: Path, data: Path, tmp_path: Path
) -> None:
    found = settings(data, method=method)
    options = replace(found, train=replace(found.train, save_every_s=0.0))
    run_until(teacher, tmp_path / "whole", options)
    with pytest.raises(KeyboardInterrupt):
        run_until(teacher, tmp_path / "out", options, 0.5)
    assert training_path(tmp_path / "out").exists()
    assert stages_path(tmp_path / "out").exists()
    made = run_until(teacher, tmp_path / "out", options)
    assert made.written.training.num_resumed_steps == 10
    assert left_over(tmp_path) == {"whole", "out"}
    for path in (tmp_path / "whole").iterdir():
        assert path.read_bytes() == (tmp_path / "out" / path.name).read_bytes()


@pytest.mark.parametrize("method", ["soft-label", *FEATURE_METHODS])
def test_a_folder_is_a_student_whose_layers_need_not_be_the_teachers(
    method: str, teacher: Path, data: Path, text: VerifyConfig, tmp_path: Path
) -> None:
    narrow = tmp_path / "narrow"
    make_model("llama", torch.float32, 5, hidden_size=32, head_dim=16).save_pretrained(narrow)
    byte_level().save(str(narrow / "tokenizer.json"))
    before = {path.name: path.read_bytes() for path in narrow.iterdir()}
    options = settings(data, student=str(narrow), method=method)
    made = distill_and_verify(teacher, tmp_path / "out", options, verify=text, num_threads=1)
    assert {path.name: path.read_bytes() for path in narrow.iterdir()} == before
    assert made.verification is not None
    assert made.verification.layer_errors == []
    assert "layers are not compared" in made.verification.protocol
    assert Checkpoint.open(tmp_path / "out").spec == Checkpoint.open(narrow).spec


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A student that means other tokens."""
    folder = tmp_path / "foreign"
    make_model("llama", torch.float32, 5, vocab_size=310).save_pretrained(folder)
    byte_level("<more>").save(str(folder / "tokenizer.json"))
    return folder


def test_vocabularies_that_differ_are_told_and_hard_labels_offered(
    teacher: Path, foreign: Path, data: Path, text: VerifyConfig, tmp_path: Path
) -> None:
    options = settings(data, student=str(foreign))
    with pytest.raises(UnsupportedError, match=r"310 tokens, and 300.*--method hard-label"):
        distill_and_verify(teacher, tmp_path / "out", options, num_threads=1)
    assert left_over(tmp_path) == {"foreign"}
    made = distill_and_verify(
        teacher,
        tmp_path / "out",
        replace(options, method="hard-label"),
        verify=text,
        num_threads=1,
    )
    assert made.not_verified == "the student has 310 tokens and its teacher 300"
    assert not (tmp_path / "out" / NAME).exists()


def test_text_that_the_teacher_samples_does_not_fit_other_tokens(
    teacher: Path, foreign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PAREDOWN_DATA", raising=False)
    options = replace(
        settings(tmp_path), student=str(foreign), method="hard-label", data=TrainingDataConfig()
    )
    with pytest.raises(ConfigError, match="--data"):
        distill_and_verify(teacher, tmp_path / "out", options, num_threads=1)


def test_without_data_the_teacher_samples_the_text(
    teacher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PAREDOWN_DATA", raising=False)
    options = replace(settings(tmp_path), data=TrainingDataConfig(row_tokens=16, held_out=0.2))
    made = distill_and_verify(teacher, tmp_path / "out", options, verify=None, num_threads=1)
    assert "text sampled from the model itself" in made.source
    assert made.written.training.judgements
    assert made.not_verified == "--no-verify"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"student": "half"}, "no such student"),
        ({"student": "every-1"}, "would be its teacher"),
        ({"train": config(40, batch_tokens=64)}, "shorter than one step"),
    ],
)
def test_what_cannot_work_is_told_and_leaves_nothing(
    changes: dict[str, object], says: str, teacher: Path, data: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=says):
        run_until(teacher, tmp_path / "out", settings(data, **changes))
    assert not left_over(tmp_path)


def test_data_with_nothing_in_it_is_told(teacher: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("")
    with pytest.raises(ConfigError, match="nothing to train on"):
        run_until(teacher, tmp_path / "out", settings(tmp_path / "text.txt"))
    assert not left_over(tmp_path)


def test_an_output_that_is_there_is_not_touched(teacher: Path, data: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(OutputError, match="exists already"):
        run_until(teacher, tmp_path / "out", settings(data))
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize("changes", [{"method": "magic"}, {"patience": 0}])
def test_a_config_out_of_range_is_refused(changes: dict[str, object], data: Path) -> None:
    with pytest.raises(ParedownError):
        settings(data, **changes)
