"""The training scripts: optimizer, data order, schedule, loss, attention, export names."""

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer
from tools.train import loss as loss_module
from tools.train.attention import causal_attention
from tools.train.checkpoint import load_checkpoint, save_checkpoint
from tools.train.data import CHUNK, ChunkOrder, encode_books, with_start
from tools.train.model import Decoder
from tools.train.optimizer import Muon, MuonSettings, orthogonalize
from tools.train.schedule import ActiveClock, Plan
from tools.train.shapes import SHAPES, Shape
from tools.train.tokenizer import train_tokenizer

SMALL = Shape(hidden=128, layers=2, intermediate=256, heads=4, kv_heads=2, head_dim=32, vocab=512)


@pytest.fixture
def order() -> ChunkOrder:
    return ChunkOrder(tokens=np.arange(20 * CHUNK + 5, dtype=np.uint16), seed=3)


@pytest.mark.parametrize("shape", [(2, 64, 64), (3, 96, 32), (1, 32, 96)])
def test_orthogonalize_gives_singular_values_near_one(shape: tuple[int, int, int]) -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.linalg.svdvals(orthogonalize(torch.randn(shape, generator=generator)))
    # Values far below the largest are lifted, though not all the way.
    assert values.max() < 1.25
    assert values.median() > 0.8


def test_muon_moves_every_stacked_part_by_its_rate() -> None:
    weight = torch.zeros(48, 32)
    weight.grad = torch.randn(48, 32, generator=torch.Generator().manual_seed(1))
    Muon([(weight, [16, 32])], MuonSettings(learning_rate=0.1, weight_decay=0.0)).step(0.5)
    for part in weight.split([16, 32]):
        assert torch.linalg.svdvals(part).max().item() == pytest.approx(0.05, rel=0.25)


def test_data_order_is_deterministic_and_reads_each_token_once(order: ChunkOrder) -> None:
    batches = [b for first in range(0, 20, 4) for b in order.batches(first, 4 * 512, 512)]
    again = [b for first in range(0, 20, 4) for b in order.batches(first, 4 * 512, 512)]
    assert all((one == other).all() for one, other in zip(batches, again, strict=True))
    assert {batch.shape for batch in batches} == {(4, 512)}
    assert sorted(np.concatenate(batches).flatten()) == list(range(20 * CHUNK))


def test_data_order_resumes_in_the_middle_and_at_another_length(order: ChunkOrder) -> None:
    whole = order.chunk_ids(0, 50)
    assert (order.chunk_ids(17, 30) == whole[17:47]).all()
    (long,) = order.batches(8, 2 * CHUNK, CHUNK)
    short = np.concatenate(order.batches(8, 2 * 512, 512), axis=1)
    assert (long == short).all()


def test_epochs_are_shuffled_anew(order: ChunkOrder) -> None:
    first, second = order.chunk_ids(0, 20), order.chunk_ids(20, 20)
    assert sorted(first) == sorted(second) == list(range(20))
    assert (first != second).any()


def test_inputs_are_targets_shifted_behind_end_of_text() -> None:
    assert with_start(np.array([[5, 6, 7]])).tolist() == [[0, 5, 6]]


def test_plan_warms_up_stays_and_decays_to_zero() -> None:
    plan = Plan(warmup_steps=10, decay_share=0.5, long_share=0.2)
    assert plan.rate_factor(0.0, 0) == pytest.approx(0.1)
    assert plan.rate_factor(0.3, 100) == 1.0
    assert plan.rate_factor(0.75, 100) == pytest.approx(0.5)
    assert plan.rate_factor(1.0, 100) == plan.rate_factor(1.2, 100) == 0.0
    assert (plan.length(0.79), plan.length(0.81)) == (512, 2048)


def test_clock_does_not_count_a_stop() -> None:
    clock = ActiveClock(budget=100.0, longest_step=30.0)
    clock.add(20.0)
    clock.add(3600.0)
    assert clock.progress == pytest.approx(0.5)


def test_attention_agrees_with_the_library() -> None:
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(2, 256, 4, 32, generator=generator)
    k, v = (torch.randn(2, 256, 2, 32, generator=generator) for _ in range(2))
    mine = causal_attention(q, k, v)
    theirs = torch.nn.functional.scaled_dot_product_attention(
        *(x.transpose(1, 2) for x in (q, k, v)), is_causal=True, enable_gqa=True
    )
    torch.testing.assert_close(mine, theirs.transpose(1, 2).flatten(2))


def test_chunked_loss_and_gradients_agree_with_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = loss_module.softmax_gradient
    monkeypatch.setattr(loss_module, "compiled_softmax_gradient", lambda: plain)
    monkeypatch.setattr(loss_module, "CHUNK_ROWS", 16)
    generator = torch.Generator().manual_seed(0)
    targets = torch.randint(0, 100, (40,), generator=generator)
    hidden = torch.randn(40, 32, generator=generator).bfloat16().requires_grad_()
    embedding = torch.randn(100, 32, generator=generator).bfloat16().float().requires_grad_()
    mine = loss_module.mean_cross_entropy(hidden, embedding, targets)
    wide = hidden.detach().float().requires_grad_()
    twin = embedding.detach().clone().requires_grad_()
    theirs = torch.nn.functional.cross_entropy(wide @ twin.T, targets)
    torch.testing.assert_close(mine, theirs, rtol=1e-2, atol=1e-2)
    mine.backward()
    theirs.backward()
    for one, other in ((hidden.grad, wide.grad), (embedding.grad, twin.grad)):
        assert (one.float() - other).norm() < 0.02 * other.norm()


def test_exported_tensors_give_transformers_the_same_logits(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Decoder(SMALL)
    for block in model.blocks:
        torch.nn.init.normal_(block.out, std=0.1)
        torch.nn.init.normal_(block.down, std=0.1)
    config = transformers.LlamaConfig(**SMALL.huggingface_config())
    theirs = transformers.LlamaForCausalLM(config)
    missing = theirs.load_state_dict(
        {name: tensor.float() for name, tensor in model.huggingface_tensors().items()},
        strict=False,
    )
    assert missing.missing_keys == ["lm_head.weight"]
    assert not missing.unexpected_keys
    theirs.tie_weights()
    ids = torch.randint(0, SMALL.vocab, (2, 64))
    with torch.inference_mode():
        mine = model(ids).float() @ model.embedding.T
        expected = theirs(ids).logits
    assert (mine - expected).norm() < 0.02 * expected.norm()
    assert sum(p.numel() for p in model.parameters()) == SMALL.parameters()


def test_checkpoint_round_trip_leaves_no_other_file(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    save_checkpoint(path, {"step": 3, "weight": torch.ones(2)})
    save_checkpoint(path, {"step": 4, "weight": torch.zeros(2)})
    assert load_checkpoint(path)["step"] == 4
    assert list(tmp_path.iterdir()) == [path]


def test_tokenizer_learns_and_books_open_with_end_of_text() -> None:
    books = ["# Title: One\n\nShe'd gone; \"'do come,\" he said.\n" * 20, "# Title: Two\n"]
    tokenizer: Tokenizer = train_tokenizer(books, 10_000)
    tokens = encode_books(tokenizer, books)
    assert (tokens == 0).sum() == 2
    assert tokens[0] == 0
    assert tokenizer.decode(tokens.tolist()) == "".join(books)


def test_shapes_have_the_sizes_of_the_shipped_models() -> None:
    assert SHAPES["default"].parameters() == 10_276_992
    assert SHAPES["draft"].parameters() == 1_344_128
