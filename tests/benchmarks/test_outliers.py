"""Outlier channels that change nothing, and the methods that live with them."""

from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.checkpoints.outliers import write_outliers
from benchmarks.outliers import W8A8, Bench, Row
from fakes.tiny_models import VARIANTS, VOCAB_SIZE
from paredown.compress.calibrate.calibration import Calibration
from paredown.evaluate.texts.text import prepare_text, sample_text, sampling_pages
from paredown.executors.load import load_executor
from paredown.executors.run_options import RunOptions
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.resolve import resolve_model
from paredown.models.text.tokenizer import Tokenizer

NUM_TOKENS = 128


@pytest.mark.parametrize(
    "variant", ["llama-gqa", "qwen3-tied-biases", "opt", "opt-gelu", "qwen2-moe"]
)
def test_no_logit_moves(variant: str, tmp_path: Path) -> None:
    VARIANTS[variant](tmp_path / "plain", torch.bfloat16, 0)
    plain = Checkpoint.open(tmp_path / "plain")
    write_outliers(plain, tmp_path / "outliers", num_channels=3, factor=64.0)
    changed = Checkpoint.open(tmp_path / "outliers")
    ids = torch.randint(2, VOCAB_SIZE, (2, 20), generator=torch.Generator().manual_seed(0))
    logits = [Decoder.from_checkpoint(one)(ids) for one in (plain, changed)]
    # Sums run over the same products, in an order that may differ with the library.
    torch.testing.assert_close(logits[1], logits[0], rtol=1e-5, atol=1e-5)
    for layer in range(plain.spec.num_layers):
        for norm in ("attention_norm.weight", "mlp_norm.weight"):
            before, after = plain.vector(norm, layer), changed.vector(norm, layer)
            assert before is not None
            assert after is not None
            ratios = after / before
            assert sorted(np.unique(ratios)) == [1, 64]
            assert np.count_nonzero(ratios == 64) == 3


def test_naive_rounding_breaks_and_the_methods_recover(tmp_path: Path) -> None:
    source = Checkpoint.open(resolve_model(None))
    tokenizer = Tokenizer.open(source.path)
    executor = load_executor(source, RunOptions(num_pages=sampling_pages(source.spec)))
    ids = np.array(sample_text(executor, tokenizer, 8 * NUM_TOKENS)).reshape(8, NUM_TOKENS)
    calibration = Calibration(windows_NT=ids[:4], source="sampled")
    text = prepare_text(ids[4:].flatten().tolist(), tokenizer, NUM_TOKENS, "sampled")
    write_outliers(source, tmp_path / "outliers", num_channels=4, factor=256.0)
    bench = Bench(Checkpoint.open(tmp_path / "outliers"), text, calibration, tmp_path)
    original = bench.pytorch(source)
    bench.add(Row(name="original", runs_on="PyTorch", perplexity=original))
    bench.measure_smoothquant(W8A8)
    bench.measure_llm_int8()
    rows = bench.rows
    assert rows["naive w8a8"].perplexity > 3 * original
    judged = [row for row in rows.values() if row.closed is not None]
    assert len(judged) == 4
    for row in judged:
        assert row.closed is not None
        assert row.bar is not None
        assert row.closed >= row.bar, row
