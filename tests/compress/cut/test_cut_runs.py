"""A cut that is killed goes on; what is cut is served as any model."""

import multiprocessing
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

from fakes.tiny_models import VOCAB_SIZE, make_model
from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.cut.cut import cut
from paredown.compress.cut.ffn import CutNeurons
from paredown.compress.cut.layers import CutLayers
from paredown.compress.cut.method import Cut
from paredown.engine.llm import LLM
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model
from paredown.spec.kv import KVSpec

WINDOWS = np.random.default_rng(3).integers(0, VOCAB_SIZE, (3, 24))
CALIBRATION = Calibration(windows_NT=WINDOWS, source="random tokens")
STEPS: tuple[Cut, ...] = (CutLayers(num=1), CutNeurons(share=1 / 3))


def cut_until(source: Path, output: Path, share: float) -> None:
    def kill(what: str, now: float) -> None:
        if now >= share:
            os.kill(os.getpid(), signal.SIGKILL)

    torch.set_num_threads(1)
    cut(Checkpoint.open(source), output, STEPS, CALIBRATION, on_progress=kill)


@pytest.mark.parametrize("share", [0.4, 0.8])
def test_a_killed_cut_goes_on(share: float, tmp_path: Path) -> None:
    make_model("llama", torch.float32, 1, num_hidden_layers=4).save_pretrained(tmp_path / "in")
    process = multiprocessing.get_context("spawn").Process(
        target=cut_until, args=(tmp_path / "in", tmp_path / "out", share)
    )
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert not (tmp_path / "out").exists()
    source = Checkpoint.open(tmp_path / "in")
    seen: list[str] = []
    cut(
        source,
        tmp_path / "out",
        STEPS,
        CALIBRATION,
        on_progress=lambda what, now: seen.append(what),
    )
    assert not any("weighing" in what for what in seen), "the survey was made again"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]
    cut(source, tmp_path / "whole", STEPS, CALIBRATION)
    found, expected = (
        (tmp_path / name / "model.safetensors").read_bytes() for name in ("out", "whole")
    )
    assert found == expected


def test_a_shorter_model_is_served(tmp_path: Path) -> None:
    """Tokens at once are those of one at a time: layers and their keys and values fit together."""
    source = Checkpoint.open(resolve_model(None))
    windows = np.random.default_rng(1).integers(0, source.spec.vocab_size, (2, 64))
    calibration = Calibration(windows_NT=windows, source="random tokens")
    result = cut(source, tmp_path / "out", (CutLayers(num=1),), calibration)
    assert len(result.kept_layers or ()) == source.spec.num_layers - 1
    llm = LLM(tmp_path / "out", num_pages=40, num_threads=1)
    prompt = [5, 6, 7]

    def greedy(num: int) -> list[int]:
        params = SamplingParams(max_tokens=num, temperature=0, ignore_eos=True)
        return llm.generate([prompt], params)[0].token_ids

    for token in greedy(8):
        assert greedy(1) == [token]
        prompt.append(token)
    kv = KVSpec(num_pages=1, dtype="bf16")
    spec = Checkpoint.open(tmp_path / "out").spec
    assert kv.page_bytes(spec) * source.spec.num_layers == kv.page_bytes(source.spec) * (
        source.spec.num_layers - 1
    )
