"""Cut models read by llama.cpp: what comes out of a cut is an ordinary smaller model."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.peers.llama_logits import LlamaLogits
from paredown.compress.convert.gguf_mixture import GGUF_FORMATS
from paredown.compress.convert.write_gguf import write_gguf
from paredown.evaluate.texts.calibration_text import CalibrationConfig
from paredown.executors.load import load_executor
from paredown.executors.protocol import LoadedExecutor, SequenceSlice
from paredown.executors.run_options import RunOptions
from paredown.jobs.compress import compress_and_verify
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.text.tokenizer import Tokenizer
from paredown.spec.weight import ActivationDType

PROMPT = "It was late in the evening when the old man"
NUM_TOKENS = 24
# Both round the inputs of quantized layers, as coarsely and each in its way. So they are apart by
# about twice what our own rounding moves a logit; sums in another order move it by the rest.
TIMES_OWN_ROUNDING, OF_SUMS = 3.0, 0.05


def executor_of(path: Path, activations: ActivationDType | None) -> LoadedExecutor:
    options = RunOptions(
        num_pages=8, threads=ThreadPlan.resolve(1), kv_dtype="fp32", activations=activations
    )
    return load_executor(Checkpoint.open(path), options)


@pytest.mark.parametrize("recipe", ["prune-ffn-25", "prune-layers-1", "prune-heads-50"])
@pytest.mark.parametrize("form", ["gguf-bf16", "gguf-q8_0", "gguf-q4_0"])
def test_a_cut_model_runs(recipe: str, form: str, tmp_path: Path) -> None:
    calibration = CalibrationConfig(num_samples=4, num_tokens=128)
    compress_and_verify(None, tmp_path / "cut", recipe, calibration=calibration, verify=None)
    path = tmp_path / f"{form}.gguf"
    write_gguf(Checkpoint.open(tmp_path / "cut"), path, formats=GGUF_FORMATS[form])
    ours, exact = (executor_of(path, activations) for activations in (None, "fp32"))
    theirs = LlamaLogits(path)
    tokenizer = Tokenizer.open(path)
    assert tokenizer.bos_token_id is not None
    ids = [tokenizer.bos_token_id, *tokenizer.encode(PROMPT)]
    try:
        for _ in range(NUM_TOKENS):
            given = SequenceSlice(token_ids=ids, start=0, pages=list(range(8)), num_logits=1)
            own, plain = (one.step([given])[-1] for one in (ours, exact))
            found = theirs.logits(ids)
            rounding = float(np.abs(own - plain).max())
            difference = float(np.abs(own - found).max())
            assert difference < TIMES_OWN_ROUNDING * rounding + OF_SUMS
            second, best = np.sort(own)[-2:]
            assert own.argmax() == found.argmax() or best - second < 2 * difference
            ids.append(int(found.argmax()))
    finally:
        theirs.close()
