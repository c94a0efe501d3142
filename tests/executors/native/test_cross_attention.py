"""Cross-attention on the native core: the reference's logits, from pages in any order."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fakes.tiny_t5 import KINDS, VOCAB_SIZE, make_t5, write_t5
from paredown.errors import UnsupportedError
from paredown.executors.load import load_executor
from paredown.executors.native.native_executor import NativeExecutor
from paredown.executors.protocol import SequenceSlice
from paredown.executors.run_options import RunOptions
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.encoder_decoder import EncoderDecoder
from paredown.spec.attention_sinks import AttentionSinks

NUM_PAGES = 40
DRAW = torch.Generator().manual_seed(5)
TEXTS = [torch.randint(2, VOCAB_SIZE, (size,), generator=DRAW).tolist() for size in (37, 20, 1)]
ANSWERS = [torch.randint(2, VOCAB_SIZE, (size,), generator=DRAW).tolist() for size in (19, 1, 4)]
# Neither in order nor beside each other.
CROSS_PAGES = [[7, 3, 31], [2, 0], [39]]
PAGES = [[5, 12], [38], [11]]


def open_t5(folder: Path, kind: str = "gated-untied", **changes: object) -> Checkpoint:
    torch.set_num_threads(1)
    write_t5(make_t5(kind, **changes), folder)
    return Checkpoint.open(folder)


def executor(checkpoint: Checkpoint, num_threads: int = 1, **fields: object) -> NativeExecutor:
    options = {"num_pages": NUM_PAGES, "kv_dtype": "fp32", "activations": "fp32"}
    threads = ThreadPlan.resolve(num_threads)
    found = load_executor(checkpoint, RunOptions(threads=threads, **(options | fields)))
    assert isinstance(found, NativeExecutor)
    return found


def slices(num_logits: int | None = None) -> list[SequenceSlice]:
    return [
        SequenceSlice(
            list(answer),
            0,
            pages,
            len(answer) if num_logits is None else num_logits,
            encoder_token_ids=text,
            num_cross_tokens=len(text),
            cross_pages=cross,
        )
        for answer, text, pages, cross in zip(ANSWERS, TEXTS, PAGES, CROSS_PAGES, strict=True)
    ]


def expected(checkpoint: Checkpoint, answers: list[list[int]]) -> list[np.ndarray]:
    reference = EncoderDecoder.from_checkpoint(checkpoint)
    with torch.no_grad():
        return [
            reference(torch.tensor([text]), torch.tensor([answer]))[0].numpy()
            for text, answer in zip(TEXTS, answers, strict=True)
        ]


@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_the_reference(kind: str, num_threads: int, tmp_path: Path) -> None:
    checkpoint = open_t5(tmp_path, kind)
    native = executor(checkpoint, num_threads)
    wanted = np.concatenate(expected(checkpoint, ANSWERS))
    np.testing.assert_allclose(native.step(slices()), wanted, atol=2e-4)
    # The last row of each answer alone, and then a token more.
    last = np.cumsum([len(one) for one in ANSWERS]) - 1
    np.testing.assert_allclose(native.step(slices(1)), wanted[last], atol=2e-4)
    parts = [
        replace(part, start=len(answer), token_ids=[9], num_logits=1, encoder_token_ids=())
        for part, answer in zip(slices(), ANSWERS, strict=True)
    ]
    longer = expected(checkpoint, [[*answer, 9, 5] for answer in ANSWERS])
    np.testing.assert_allclose(native.step(parts), [one[-2] for one in longer], atol=2e-4)
    again = native.step_again([5, 5, 5])
    np.testing.assert_allclose(again, [one[-1] for one in longer], atol=2e-4)


def test_heads_of_any_size(tmp_path: Path) -> None:
    checkpoint = open_t5(tmp_path, d_kv=24)
    wanted = np.concatenate(expected(checkpoint, ANSWERS))
    np.testing.assert_allclose(executor(checkpoint).step(slices()), wanted, atol=2e-4)


def test_weights_are_shared_with_other_pages_and_come_from_the_cache(tmp_path: Path) -> None:
    native = executor(open_t5(tmp_path))
    first = native.step(slices())
    other = native.sharing_weights(replace(native.kv, num_pages=NUM_PAGES))
    assert np.array_equal(other.step(slices()), first)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cross_pages": [7, 3]}, "too few pages"),
        ({"cross_pages": [7, 3, NUM_PAGES]}, "page 40 is unknown"),
        ({"cross_pages": [], "encoder_token_ids": ()}, "too few pages"),
        ({"num_cross_tokens": 0, "encoder_token_ids": ()}, "no tokens"),
        ({"encoder_token_ids": [VOCAB_SIZE] * 37}, "outside the vocabulary"),
    ],
)
def test_bad_slices_are_refused_and_the_next_step_is_right(
    changes: dict[str, object], message: str, tmp_path: Path
) -> None:
    native = executor(open_t5(tmp_path))
    first = native.step(slices())
    with pytest.raises(ValueError, match=message):
        native.step([replace(slices()[0], **changes)])
    assert np.array_equal(native.step(slices()), first)


def test_other_ways_to_run_it_are_refused(tmp_path: Path) -> None:
    checkpoint = open_t5(tmp_path)
    with pytest.raises(UnsupportedError, match="no pages for cross-attention"):
        load_executor(checkpoint, RunOptions(executor="torch", num_pages=NUM_PAGES))
    with pytest.raises(UnsupportedError, match="attention sinks need rotary positions"):
        executor(checkpoint, sinks=AttentionSinks(num_sink_tokens=4, window=20))
