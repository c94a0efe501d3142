"""The native executor agrees with Transformers on checkpoints that Transformers wrote."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from fakes.tiny_models import VARIANTS, VOCAB_SIZE
from paredown.executors.load import load_executor
from paredown.executors.native.native_executor import NativeExecutor
from paredown.executors.protocol import SequenceSlice
from paredown.executors.run_options import RunOptions
from paredown.kernels.isa import ENVIRONMENT_VARIABLE, supported_isas
from paredown.models.checkpoint import Checkpoint

NUM_TOKENS = 40
RELATIVE_TOLERANCE = 2e-3
FP32_TOLERANCE = 1e-4


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def native_logits(executor: NativeExecutor, ids: list[int]) -> np.ndarray:
    pages = list(range(executor.num_pages))
    part = SequenceSlice(token_ids=ids, start=0, pages=pages, num_logits=len(ids))
    return executor.step([part])


def native_greedy(executor: NativeExecutor, prompt: list[int], num_tokens: int) -> list[int]:
    pages = list(range(executor.num_pages))
    ids, new = list(prompt), list(prompt)
    for _ in range(num_tokens):
        start = len(ids) - len(new)
        part = SequenceSlice(token_ids=new, start=start, pages=pages, num_logits=1)
        new = [int(executor.step([part])[-1].argmax())]
        ids += new
    return ids[len(prompt) :]


def transformers_greedy(model: torch.nn.Module, prompt: list[int], num_tokens: int) -> list[int]:
    ids = torch.tensor([prompt])
    with torch.no_grad():
        for _ in range(num_tokens):
            ids = torch.cat([ids, model(ids).logits[:, -1:].argmax(-1)], dim=1)
    return ids[0, len(prompt) :].tolist()


def load_theirs(folder: Path) -> torch.nn.Module:
    """Their arithmetic in float32 on the stored weights, so that only our rounding is seen."""
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    return model.to(torch.float32).eval()


def random_ids() -> list[int]:
    return np.random.default_rng(1).integers(0, VOCAB_SIZE, NUM_TOKENS).tolist()


def check_parity(folder: Path, tolerance: float) -> None:
    theirs = load_theirs(folder)
    executor = load_executor(
        Checkpoint.open(folder), RunOptions(num_pages=8, kv_dtype="fp32", activations="fp32")
    )
    ids = random_ids()
    with torch.no_grad():
        expected = theirs(torch.tensor([ids])).logits[0].numpy()
    difference = np.abs(native_logits(executor, ids) - expected).max()
    assert difference <= tolerance * np.abs(expected).max()
    prompt = ids[:5]
    assert native_greedy(executor, prompt, 12) == transformers_greedy(theirs, prompt, 12)


@pytest.mark.parametrize("name", VARIANTS)
def test_bf16_weights_agree_with_transformers(name: str, tmp_path: Path) -> None:
    VARIANTS[name](tmp_path, torch.bfloat16, 0)
    check_parity(tmp_path, RELATIVE_TOLERANCE)


@pytest.mark.parametrize("name", VARIANTS)
def test_fp32_weights_agree_with_transformers(name: str, tmp_path: Path) -> None:
    VARIANTS[name](tmp_path, torch.float32, 1)
    check_parity(tmp_path, FP32_TOLERANCE)


@pytest.mark.parametrize("isa", supported_isas())
@pytest.mark.parametrize(
    "name", ["llama-gqa", "qwen3", "gpt2", "opt", "mistral-window", "qwen2-moe", "gemma2"]
)
def test_every_instruction_set_agrees_with_transformers(
    isa: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, isa)
    for dtype, tolerance in ((torch.bfloat16, RELATIVE_TOLERANCE), (torch.float16, 1e-4)):
        folder = tmp_path / str(dtype)
        VARIANTS[name](folder, dtype, 2)
        check_parity(folder, tolerance)


def test_bf16_pages_stay_close_to_fp32_pages(tmp_path: Path) -> None:
    VARIANTS["llama-gqa"](tmp_path, torch.bfloat16, 0)
    checkpoint = Checkpoint.open(tmp_path)
    ids = random_ids()
    exact = native_logits(load_executor(checkpoint, RunOptions(num_pages=8, kv_dtype="fp32")), ids)
    rounded = native_logits(
        load_executor(checkpoint, RunOptions(num_pages=8, kv_dtype="bf16")), ids
    )
    # bf16 keeps 8 bits of mantissa: keys and values move by up to 0.2 %.
    assert 0 < np.abs(exact - rounded).max() <= 0.02 * np.abs(exact).max()


@pytest.mark.parametrize("name", VARIANTS)
def test_bf16_activations_cost_no_more_than_bf16_in_transformers(name: str, tmp_path: Path) -> None:
    """What bf16 weights meet unless asked otherwise: their inputs rounded to bf16."""
    VARIANTS[name](tmp_path, torch.bfloat16, 0)
    ids = random_ids()
    theirs = load_theirs(tmp_path)
    executor = load_executor(Checkpoint.open(tmp_path), RunOptions(num_pages=8, kv_dtype="fp32"))
    with torch.no_grad():
        exact = theirs(torch.tensor([ids])).logits[0].float().numpy()
        rounded = theirs.to(torch.bfloat16)(torch.tensor([ids])).logits[0].float().numpy()
    ours = np.square(native_logits(executor, ids) - exact).mean()
    assert 0 < ours <= np.square(rounded - exact).mean()
