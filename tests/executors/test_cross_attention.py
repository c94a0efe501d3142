"""Cross-attention on each executor: the reference's logits, from pages in any order."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from drivers.devices import CUDA
from fakes.tiny_t5 import KINDS, VOCAB_SIZE, make_t5, write_t5
from paredown.errors import UnsupportedError
from paredown.executors.load import load_executor
from paredown.executors.protocol import LoadedExecutor, SequenceSlice
from paredown.executors.run_options import ExecutorName, RunOptions
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.encoder_decoder import EncoderDecoder
from paredown.spec.attention_sinks import AttentionSinks
from paredown.spec.device import Device

EXECUTORS = [
    ("native", "cpu"),
    ("torch", "cpu"),
    pytest.param("torch", "cuda", marks=CUDA.marks),
]
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


def executor(
    checkpoint: Checkpoint,
    name: ExecutorName = "native",
    device: Device = "cpu",
    num_threads: int = 1,
    **fields: object,
) -> LoadedExecutor:
    options = {"num_pages": NUM_PAGES, "kv_dtype": "fp32", "activations": "fp32"}
    threads = ThreadPlan.resolve(num_threads)
    own = options | {"executor": name, "device": device, "threads": threads} | fields
    return load_executor(checkpoint, RunOptions(**own))


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
@pytest.mark.parametrize(("name", "device"), EXECUTORS)
@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_the_reference(
    kind: str, name: ExecutorName, device: Device, num_threads: int, tmp_path: Path
) -> None:
    checkpoint = open_t5(tmp_path, kind)
    runs = executor(checkpoint, name, device, num_threads)
    wanted = np.concatenate(expected(checkpoint, ANSWERS))
    np.testing.assert_allclose(runs.step(slices()), wanted, atol=2e-4)
    # The last row of each answer alone, and then a token more.
    last = np.cumsum([len(one) for one in ANSWERS]) - 1
    np.testing.assert_allclose(runs.step(slices(1)), wanted[last], atol=2e-4)
    parts = [
        replace(part, start=len(answer), token_ids=[9], num_logits=1, encoder_token_ids=())
        for part, answer in zip(slices(), ANSWERS, strict=True)
    ]
    longer = expected(checkpoint, [[*answer, 9, 5] for answer in ANSWERS])
    np.testing.assert_allclose(runs.step(parts), [one[-2] for one in longer], atol=2e-4)
    again = runs.step_again([5, 5, 5])
    np.testing.assert_allclose(again, [one[-1] for one in longer], atol=2e-4)


@pytest.mark.parametrize(("name", "device"), EXECUTORS)
def test_heads_of_any_size(name: ExecutorName, device: Device, tmp_path: Path) -> None:
    checkpoint = open_t5(tmp_path, d_kv=24)
    wanted = np.concatenate(expected(checkpoint, ANSWERS))
    np.testing.assert_allclose(executor(checkpoint, name, device).step(slices()), wanted, atol=2e-4)


@pytest.mark.parametrize(("name", "device"), EXECUTORS)
@pytest.mark.parametrize("kv_dtype", ["fp32", "bf16"])
def test_rows_have_the_same_bits_alone_and_beside_others(
    name: ExecutorName, device: Device, kv_dtype: str, tmp_path: Path
) -> None:
    """Also in chunks of an answer, and from pages that another text was in before."""
    checkpoint = open_t5(tmp_path)
    together = executor(checkpoint, name, device, kv_dtype=kv_dtype).step(slices())
    alone = executor(checkpoint, name, device, kv_dtype=kv_dtype)
    alone.step([replace(part, token_ids=[4] * len(part.token_ids)) for part in slices()[::-1]])
    rows = [alone.step([part]) for part in slices()[1:]]
    part = slices()[0]
    rows.insert(0, alone.step([replace(part, token_ids=part.token_ids[:7], num_logits=7)]))
    rest = replace(part, token_ids=part.token_ids[7:], start=7, num_logits=12, encoder_token_ids=())
    rows.insert(1, alone.step([rest]))
    assert np.array_equal(np.concatenate(rows), together)


@pytest.mark.parametrize(("name", "device"), EXECUTORS)
def test_weights_are_shared_with_other_pages(
    name: ExecutorName, device: Device, tmp_path: Path
) -> None:
    runs = executor(open_t5(tmp_path), name, device)
    first = runs.step(slices())
    other = runs.sharing_weights(replace(runs.kv, num_pages=NUM_PAGES))
    assert np.array_equal(other.step(slices()), first)


@pytest.mark.parametrize(("name", "device"), EXECUTORS)
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
    changes: dict[str, object], message: str, name: ExecutorName, device: Device, tmp_path: Path
) -> None:
    runs = executor(open_t5(tmp_path), name, device)
    first = runs.step(slices())
    with pytest.raises(ValueError, match=message):
        runs.step([replace(slices()[0], **changes)])
    assert np.array_equal(runs.step(slices()), first)


@pytest.mark.parametrize(("name", "device"), EXECUTORS)
def test_attention_sinks_are_refused(name: ExecutorName, device: Device, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="attention sinks need rotary positions"):
        executor(
            open_t5(tmp_path), name, device, sinks=AttentionSinks(num_sink_tokens=4, window=20)
        )
