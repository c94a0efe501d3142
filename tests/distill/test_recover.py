"""Recovery: zeros stay zeros, a killed run ends in the same bytes, bad input is refused before the
first step (C07, D09)."""

import json
import multiprocessing
import re
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from drivers.tiny_training import config, random_rows, recover_until
from fakes.small_tokenizers import byte_level
from fakes.tiny_models import make_model
from paredown.distill.adamw import AdamWConfig
from paredown.distill.losses.cross_entropy import CrossEntropy
from paredown.distill.recover import RecoverConfig, recover
from paredown.distill.training_folder import training_path
from paredown.errors import CapacityError, ConfigError, OutputError, UnsupportedError
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.write import write_decoder
from paredown.models.resolve import resolve_model
from paredown.models.roles import linear_places

ROWS = random_rows(10, 16)
SETTINGS = RecoverConfig(train=config(20 * 16, batch_tokens=16, learning_rate=1e-3))


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("original")
    make_model("qwen3", torch.bfloat16, 4).save_pretrained(folder)
    byte_level().save(str(folder / "tokenizer.json"))
    return folder


def prune(original: Path, folder: Path, pattern: str = "50") -> Path:
    """Writes the model with half of each linear layer's weights 0."""
    source = Checkpoint.open(original)
    decoder = Decoder.from_checkpoint(source)
    with torch.no_grad():
        for role, layer in linear_places(source.spec):
            weight_OI = decoder.get_parameter(f"layers.{layer}.{role}.weight")
            if pattern == "50":
                weight_OI[weight_OI.abs() < weight_OI.abs().median()] = 0
            else:
                smallest = weight_OI.abs().view(-1, 4).argsort(dim=1)[:, :2]
                weight_OI.view(-1, 4).scatter_(1, smallest, 0.0)
    write_decoder(decoder, source, folder)
    return folder


@pytest.fixture
def pruned(original: Path, tmp_path: Path) -> Path:
    return prune(original, tmp_path / "pruned")


def linears(folder: Path) -> dict[tuple[str, int], np.ndarray]:
    source = Checkpoint.open(folder)
    return {
        (role, layer): source.linear(role, layer).dequantize()
        for role, layer in linear_places(source.spec)
    }


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("pattern", ["50", "2of4"])
def test_zeros_stay_exactly_zero(pattern: str, original: Path, tmp_path: Path) -> None:
    pruned = prune(original, tmp_path / "pruned", pattern)
    adam = AdamWConfig(weight_decay=0.1)
    settings = replace(SETTINGS, train=replace(SETTINGS.train, optimizer=adam))
    result = recover_until((pruned, original, tmp_path / "out"), settings, ROWS)
    before, after = linears(pruned), linears(tmp_path / "out")
    for place, values in before.items():
        assert (after[place][values == 0] == 0).all()
        assert (after[place] != values).any()
    assert result.num_held == sum(int((values == 0).sum()) for values in before.values())


def test_a_recovered_model_is_nearer_to_its_original(
    original: Path, pruned: Path, tmp_path: Path
) -> None:
    steps = config(30 * 128, batch_tokens=128, learning_rate=3e-3)
    settings = RecoverConfig(train=steps)
    recover_until((pruned, original, tmp_path / "soft"), settings, random_rows(240, 16))
    batch = torch.from_numpy(random_rows(8, 16, seed=8).tokens_NT)
    log_p = Decoder.from_checkpoint(Checkpoint.open(original))(batch).log_softmax(-1)

    def divergence(folder: Path) -> float:
        log_q = Decoder.from_checkpoint(Checkpoint.open(folder))(batch).log_softmax(-1)
        return float((log_p.exp() * (log_p - log_q)).sum(-1).mean())

    assert divergence(tmp_path / "soft") < 0.9 * divergence(pruned)


def test_what_is_not_trained_stays(original: Path, pruned: Path, tmp_path: Path) -> None:
    settings = replace(SETTINGS, trains_tables=False, loss=CrossEntropy())
    recover_until((pruned, original, tmp_path / "out"), settings, ROWS)
    before, after = (Checkpoint.open(folder) for folder in (pruned, tmp_path / "out"))
    assert (before.embedding().dequantize() == after.embedding().dequantize()).all()
    name = "layers.0.attention_norm.weight"
    one, other = (Decoder.from_checkpoint(folder).get_parameter(name) for folder in (before, after))
    assert (one != other).any()


def test_a_killed_run_ends_in_the_same_bytes(original: Path, pruned: Path, tmp_path: Path) -> None:
    """Two passes over ten rows of one step each, saved after each step; killed in the second."""
    train = replace(SETTINGS.train, save_every_s=0.0, log=tmp_path / "log.csv")
    settings = replace(SETTINGS, train=train)
    whole = recover_until((pruned, original, tmp_path / "whole"), settings, ROWS)
    log = (tmp_path / "log.csv").read_text()
    folders = (pruned, original, tmp_path / "out")
    process = multiprocessing.get_context("spawn").Process(
        target=recover_until, args=(folders, settings, ROWS, 0.65)
    )
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    assert not (tmp_path / "out").exists()
    resumed = recover_until(folders, settings, ROWS)
    assert resumed.training.num_resumed_steps == 13
    told = [
        [replace(record, elapsed_s=0.0) for record in run.training.records]
        for run in (whole, resumed)
    ]
    assert told[0] == told[1]
    assert bytes_of(tmp_path / "whole") == bytes_of(tmp_path / "out")
    assert not training_path(tmp_path / "out").exists()
    lines = [
        [line.rsplit(",", 1)[0] for line in text.splitlines()]
        for text in (log, (tmp_path / "log.csv").read_text())
    ]
    assert lines[0] == lines[1]
    assert len(lines[0]) == 21


def test_a_run_of_other_numbers_begins_anew(original: Path, pruned: Path, tmp_path: Path) -> None:
    train = replace(SETTINGS.train, save_every_s=0.0)
    folders = (pruned, original, tmp_path / "out")
    with pytest.raises(KeyboardInterrupt):
        interrupt_at(folders, replace(SETTINGS, train=train), 0.5)
    other = replace(SETTINGS, train=replace(train, learning_rate=2e-3))
    assert recover_until(folders, other, ROWS).training.num_resumed_steps == 0


def interrupt_at(folders: tuple[Path, Path, Path], settings: RecoverConfig, share: float) -> None:
    def stop(what: str, now: float) -> None:
        if now >= share:
            raise KeyboardInterrupt

    pruned, original, output = folders
    models = Checkpoint.open(pruned), Checkpoint.open(original)
    recover(*models, output, settings, ROWS, on_progress=stop)


def test_a_damaged_state_is_not_read(original: Path, pruned: Path, tmp_path: Path) -> None:
    settings = replace(SETTINGS, train=replace(SETTINGS.train, save_every_s=0.0))
    folders = (pruned, original, tmp_path / "out")
    with pytest.raises(KeyboardInterrupt):
        interrupt_at(folders, settings, 0.5)
    state = training_path(tmp_path / "out") / "training.pt"
    state.write_bytes(state.read_bytes()[:-1000])
    assert recover_until(folders, settings, ROWS).training.num_resumed_steps == 0


def test_a_folder_that_another_could_have_made_is_not_used(
    original: Path, pruned: Path, tmp_path: Path
) -> None:
    work = training_path(tmp_path / "out")
    work.mkdir()
    work.chmod(0o777)
    with pytest.raises(OutputError, match="not a folder that an earlier run"):
        recover_until((pruned, original, tmp_path / "out"), SETTINGS, ROWS)


def test_another_vocabulary_is_refused(original: Path, pruned: Path, tmp_path: Path) -> None:
    path = pruned / "tokenizer.json"
    fields = json.loads(path.read_text())
    vocabulary = fields["model"]["vocab"]
    five, nine = (next(text for text, i in vocabulary.items() if i == one) for one in (5, 9))
    vocabulary[five], vocabulary[nine] = 9, 5
    path.write_text(json.dumps(fields))
    with pytest.raises(UnsupportedError, match=re.escape(f"token 5 is {nine!r}, and {five!r}")):
        recover_until((pruned, original, tmp_path / "out"), SETTINGS, ROWS)
    assert list(tmp_path.iterdir()) == [pruned]


def test_another_size_of_the_vocabulary_is_refused(
    original: Path, pruned: Path, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedError, match="300 tokens, and 8,192"):
        recover_until((pruned, resolve_model(None), tmp_path / "out"), SETTINGS, ROWS)


def test_a_budget_smaller_than_a_step_is_refused(
    original: Path, pruned: Path, tmp_path: Path
) -> None:
    settings = RecoverConfig(train=config(15, batch_tokens=16))
    with pytest.raises(ConfigError, match="shorter than one step"):
        recover_until((pruned, original, tmp_path / "out"), settings, ROWS)
    assert list(tmp_path.iterdir()) == [pruned]


def test_what_does_not_fit_in_memory_is_refused(
    original: Path, pruned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paredown.distill.memory.free_bytes", lambda device: 1 << 20)
    with pytest.raises(CapacityError, match="does not fit"):
        recover_until((pruned, original, tmp_path / "out"), SETTINGS, ROWS)
    assert list(tmp_path.iterdir()) == [pruned]
