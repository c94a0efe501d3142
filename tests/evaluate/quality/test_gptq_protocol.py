"""The papers' perplexity: the same as their procedure gives on Transformers."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from fakes.byte_tokenizer import write_byte_tokenizer
from fakes.tiny_models import MAX_POSITIONS, make_model
from fakes.toy_executor import ToyTokenizer
from paredown.errors import CheckpointError, ConfigError
from paredown.evaluate.quality.gptq_protocol import gptq_text, join_ptb, join_wikitext
from paredown.evaluate.quality.quality import measure_quality, num_pages_for
from paredown.executors.load import load_executor
from paredown.executors.run_options import RunOptions
from paredown.models.checkpoint import Checkpoint
from paredown.models.text.tokenizer import Tokenizer

WIKITEXT = " \n = Robert = \n \n Robert is a film , which is naïve . \n \n \n = = End = = \n" * 12
# What `datasets` makes of such a file: rows with their ends, and nothing for a line of space.
ROWS = ["", " = Robert = \n", "", " Robert is a film , which is naïve . \n", "", ""]
ROWS += [" = = End = = \n"]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in (
        ("wikitext-2/test.txt", WIKITEXT),
        ("ptb/ptb.test.txt", " no it was n't \n black monday \n" * 40),
    ):
        path = tmp_path / "text" / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    monkeypatch.setenv("PAREDOWN_DATA", str(tmp_path))
    return tmp_path


def papers_perplexity(model, tokenizer, rows: list[str], seqlen: int, join: str) -> float:
    """Transcribed from what the paper's evaluation does, loop for loop."""
    ids = tokenizer(join.join(rows), return_tensors="pt").input_ids
    nsamples = ids.numel() // seqlen
    nlls = []
    for i in range(nsamples):
        batch = ids[:, i * seqlen : (i + 1) * seqlen]
        with torch.no_grad():
            logits = model(batch).logits
        shifted = logits[:, :-1, :].reshape(-1, logits.size(-1))
        loss = torch.nn.functional.cross_entropy(shifted, batch[:, 1:].reshape(-1))
        nlls.append(loss.float() * seqlen)
    return float(torch.exp(torch.stack(nlls).sum() / (nsamples * seqlen)))


@pytest.mark.parametrize("start_token", [False, True])
@pytest.mark.parametrize("dataset", ["wikitext2", "ptb"])
def test_the_perplexity_is_that_of_the_papers_procedure(
    data: Path, tmp_path: Path, dataset: str, start_token: bool
) -> None:
    folder = tmp_path / "model"
    make_model("llama", torch.float32, 3).save_pretrained(folder)
    write_byte_tokenizer(folder, start_token=start_token)
    checkpoint = Checkpoint.open(folder)
    text = gptq_text(dataset, Tokenizer.open(folder), checkpoint.spec.max_positions)
    assert text.window_tokens == MAX_POSITIONS
    executor = load_executor(
        checkpoint, RunOptions(num_pages=num_pages_for(text), kv_dtype="fp32", activations="fp32")
    )
    (quality,), _ = measure_quality([executor], text)

    rows = ROWS * 12 if dataset == "wikitext2" else ["no it was n't", "black monday"] * 40
    join = "\n\n" if dataset == "wikitext2" else " "
    theirs = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    expected = papers_perplexity(model, theirs, rows, MAX_POSITIONS, join)
    assert quality.perplexity == pytest.approx(expected, rel=1e-4)


def test_rows_are_joined_as_the_papers_join_them() -> None:
    assert join_wikitext([" ", " = A = ", " b . "]) == "\n\n = A = \n\n\n b . \n"
    assert join_ptb([" no it was ", "", " black monday "]) == "no it was  black monday"


def test_a_line_ends_at_newlines_alone(tmp_path: Path) -> None:
    path = tmp_path / "test.txt"
    path.write_text(" one\x0btwo\u2028three \n" * 9)
    text = gptq_text("wikitext2", ToyTokenizer(), 64, path=path)
    whole = "\n\n".join([" one\x0btwo\u2028three \n"] * 9)
    tokens = [token for one in text.windows for token in (one.inputs[0], *one.targets)]
    assert tokens == ToyTokenizer().encode(whole)[: len(tokens)]


def test_windows_do_not_overlap_and_the_remainder_is_dropped(data: Path) -> None:
    text = gptq_text("ptb", ToyTokenizer(), 64)
    ids = ToyTokenizer().encode(" ".join(["no it was n't", "black monday"] * 40))
    num_windows = len(ids) // 64
    assert len(text.windows) == num_windows
    assert text.num_tokens == num_windows * 63
    for i, one in enumerate(text.windows):
        assert [one.inputs[0], *one.targets] == ids[i * 64 : (i + 1) * 64]
        assert one.inputs == ids[i * 64 : (i + 1) * 64 - 1]
    assert f"{num_windows} windows of 64" in text.protocol
    assert f"the last {len(ids) - num_windows * 64} not" in text.protocol
    assert len(gptq_text("ptb", ToyTokenizer(), 64, num_tokens=200).windows) == 3


def test_a_copy_without_rare_words_is_named_as_such(data: Path, tmp_path: Path) -> None:
    assert "<unk>" not in gptq_text("wikitext2", ToyTokenizer(), 64).protocol
    path = tmp_path / "test.txt"
    path.write_text(WIKITEXT.replace("Robert", "<unk>"))
    assert "<unk>" in gptq_text("wikitext2", ToyTokenizer(), 64, path=path).protocol


def test_missing_data_is_told_with_what_to_set(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("PAREDOWN_DATA", raising=False)
    with pytest.raises(ConfigError, match=r"PAREDOWN_DATA is not set.*--text"):
        gptq_text("wikitext2", ToyTokenizer(), 64)
    monkeypatch.setenv("PAREDOWN_DATA", str(tmp_path))
    with pytest.raises(ConfigError, match=r"no file .*wikitext-2.*PAREDOWN_DATA"):
        gptq_text("wikitext2", ToyTokenizer(), 64)
    with pytest.raises(CheckpointError, match="cannot be read"):
        gptq_text("ptb", ToyTokenizer(), 64, path=tmp_path / "none.txt")


@pytest.mark.parametrize("options", [{}, {"num_tokens": 63}, {"num_tokens": -3}])
def test_less_than_a_window_is_refused(tmp_path: Path, options) -> None:
    path = tmp_path / "test.txt"
    path.write_text("a" * (1000 if options else 10))
    with pytest.raises(ConfigError, match="no whole window"):
        gptq_text("wikitext2", ToyTokenizer(), 64, path=path, **options)
