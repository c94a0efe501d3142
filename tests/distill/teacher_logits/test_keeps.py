"""What is kept of a distribution: samples are right on average, top tokens by their rule, and the
whole is the whole."""

import math
from collections.abc import Callable
from itertools import accumulate

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from paredown.distill.losses.kl import KL
from paredown.distill.losses.token_loss import TokenLoss
from paredown.distill.losses.top_share_kl import TopShareKL
from paredown.distill.teacher import LogProbabilities
from paredown.distill.teacher_logits import draws, top, whole
from paredown.distill.teacher_logits.draws import Draws
from paredown.distill.teacher_logits.keep import Keep
from paredown.distill.teacher_logits.keeps import parse_keep
from paredown.distill.teacher_logits.top import Top
from paredown.distill.teacher_logits.whole import Whole
from paredown.errors import ConfigError

VOCAB_SIZE = 20
RANDOM = torch.Generator().manual_seed(5)
TEACHER = 2 * torch.randn(VOCAB_SIZE, generator=RANDOM)
LOGITS = 2 * torch.randn(VOCAB_SIZE, generator=RANDOM, dtype=torch.float64)
KEEPS = [Draws(num_draws=6), Top(num_tokens=4), Top(num_tokens=4, missing_mass="renormalized")]
KEEPS += [Whole()]  # type: ignore[list-item]


def log_p(num_targets: int, seed: int, vocab_size: int = VOCAB_SIZE) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    return (3 * torch.randn(num_targets, vocab_size, generator=random)).log_softmax(-1)


def encoded(keep: Keep, log_p_NV: Tensor, seed: int = 0) -> bytes:
    rows, vocab_size = log_p_NV.shape
    return keep.encode(lambda own: log_p_NV[own], rows, vocab_size, np.random.default_rng(seed))


def kept(keep: Keep, log_p_NV: Tensor, seed: int = 0) -> LogProbabilities:
    data = np.frombuffer(encoded(keep, log_p_NV, seed), np.uint8)
    return keep.decode(data, *log_p_NV.shape)


def mean_gradient(loss: TokenLoss, teacher_NV: Tensor) -> Tensor:
    logits_V = LOGITS.clone().requires_grad_()
    targets_N = torch.zeros(len(teacher_NV), dtype=torch.int64)
    losses_N = loss.losses(logits_V.expand(len(teacher_NV), -1), targets_N, teacher_NV)
    return torch.autograd.grad(losses_N.mean(), logits_V)[0]


def cross_entropy(teacher_NV: Tensor) -> float:
    return -float((teacher_NV.double().exp() * LOGITS.log_softmax(-1)).sum(-1).mean())


def test_samples_are_unbiased_and_the_top_is_not() -> None:
    known_NV = TEACHER.log_softmax(-1).expand(20_000, -1)
    drawn_NV = kept(Draws(num_draws=8), known_NV)(slice(None))
    expected = mean_gradient(KL(), known_NV[:1])
    # 160,000 draws: the error of each share is at most 0.5 / 400, and four of these are rare.
    assert (mean_gradient(KL(), drawn_NV) - expected).abs().max() < 5e-3
    spread = float(LOGITS.log_softmax(-1).std()) / 400
    assert abs(cross_entropy(drawn_NV) - cross_entropy(known_NV[:1])) < 4 * spread
    for keep in (Top(num_tokens=4), Top(num_tokens=4, missing_mass="renormalized")):
        made_NV = kept(keep, known_NV[:1])(slice(None))
        assert (mean_gradient(KL(), made_NV) - expected).abs().max() > 1e-2
        assert abs(cross_entropy(made_NV) - cross_entropy(known_NV[:1])) > 4 * spread
    uniform = mean_gradient(TopShareKL(share=0.2, missing_mass="uniform"), known_NV[:1])
    made_NV = kept(Top(num_tokens=4), known_NV[:1])(slice(None))
    torch.testing.assert_close(mean_gradient(KL(), made_NV), uniform, rtol=1e-5, atol=1e-6)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), num_draws=st.sampled_from([1, 7, 255, 256, 400]))
def test_samples_are_the_counts_of_their_draws(seed: int, num_draws: int) -> None:
    log_p_NV = log_p(9, seed)
    draws_NS = np.random.default_rng(seed).random((9, num_draws))
    found_NV = kept(Draws(num_draws=num_draws), log_p_NV, seed)(slice(None)).exp()
    for own, draws_S, log_p_V in zip(found_NV, draws_NS, log_p_NV, strict=True):
        sums = list(accumulate(log_p_V.double().exp().tolist()))
        counts = [0] * VOCAB_SIZE
        for draw in draws_S * sums[-1]:
            counts[next(token for token in range(VOCAB_SIZE) if draw < sums[token])] += 1
        expected = torch.tensor(counts) / num_draws
        torch.testing.assert_close(own, expected.float(), rtol=1e-5, atol=1e-7)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), num_tokens=st.integers(1, VOCAB_SIZE))
def test_the_top_follows_its_rule(seed: int, num_tokens: int) -> None:
    log_p_NV = log_p(5, seed)
    spread_NV, normed_NV = (
        kept(Top(num_tokens=num_tokens, missing_mass=rule), log_p_NV)(slice(None)).exp()
        for rule in ("spread", "renormalized")
    )
    spread, normed = spread_NV.tolist(), normed_NV.tolist()
    for row, log_p_V in enumerate(log_p_NV):
        p = [math.exp(one) for one in log_p_V.tolist()]
        best = sorted(range(VOCAB_SIZE), key=lambda token: -p[token])[:num_tokens]
        mass = sum(p[token] for token in best)
        others = VOCAB_SIZE - num_tokens
        for token in range(VOCAB_SIZE):
            is_best = token in best
            rest = max(1 - mass, 2.0**-23) / others if others else 0.0
            assert spread[row][token] == pytest.approx(p[token] if is_best else rest, abs=1e-6)
            assert normed[row][token] == pytest.approx(p[token] / mass * is_best, abs=1e-6)


def test_the_whole_keeps_its_bits() -> None:
    log_p_NV = log_p(7, 3)
    assert (kept(Whole(), log_p_NV)(slice(None)) == log_p_NV).all()


@pytest.mark.parametrize("vocab_size", [VOCAB_SIZE, 70_000])
@pytest.mark.parametrize("keep", KEEPS, ids=lambda keep: keep.name)
def test_slices_and_chunks_are_those_of_the_whole(
    keep: Keep, vocab_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_p_NV = log_p(11, 4, vocab_size)
    known = kept(keep, log_p_NV)
    assert keep.least_bytes(11, vocab_size) <= len(encoded(keep, log_p_NV))
    for rows in (slice(0, 4), slice(4, 11), slice(10, 20), slice(3, 3)):
        assert torch.equal(known(rows), known(slice(None))[rows])
    for module in (draws, top, whole):
        monkeypatch.setattr(module, "chunk_rows", lambda size: 3)
    assert torch.equal(kept(keep, log_p_NV)(slice(None)), known(slice(None)))


@pytest.mark.parametrize("keep", KEEPS, ids=lambda keep: keep.name)
def test_nothing_is_kept_of_no_targets(keep: Keep) -> None:
    assert encoded(keep, log_p(0, 1)) == b""
    assert kept(keep, log_p(0, 1))(slice(None)).shape == (0, VOCAB_SIZE)


def shorter(data: bytes) -> bytes:
    return data[:-1]


def longer(data: bytes) -> bytes:
    return data + b"\0"


def nothing(data: bytes) -> bytes:
    return b""


@pytest.mark.parametrize("change", [shorter, longer, nothing])
@pytest.mark.parametrize("keep", KEEPS, ids=lambda keep: keep.name)
def test_other_bytes_are_refused(keep: Keep, change: Callable[[bytes], bytes]) -> None:
    data = np.frombuffer(change(encoded(keep, log_p(6, 1))), np.uint8)
    with pytest.raises(ValueError, match="bytes"):
        keep.decode(data, 6, VOCAB_SIZE)


@pytest.mark.parametrize("keep", KEEPS[:3], ids=lambda keep: keep.name)
def test_a_token_that_is_not_there_is_refused(keep: Keep) -> None:
    data = np.frombuffer(encoded(keep, log_p(6, 1)), np.uint8)
    with pytest.raises(ValueError, match="of a vocabulary of 10"):
        keep.decode(data, 6, 10)


def test_counts_that_do_not_add_up_are_refused() -> None:
    data = np.frombuffer(encoded(Draws(num_draws=6), log_p(6, 1)), np.uint8)
    with pytest.raises(ValueError, match="add up to 7"):
        Draws(num_draws=7).decode(data, 6, VOCAB_SIZE)


def test_names_are_read() -> None:
    for keep in KEEPS:
        assert parse_keep(keep.name) == keep


@pytest.mark.parametrize("kind", ["samples", "top", "whole", "all"])
@pytest.mark.parametrize("ending", ["-0", "--1", "-1e3", "-5-spread", "-5\n", "-9999999999", "-"])
def test_other_names_are_refused(kind: str, ending: str) -> None:
    with pytest.raises(ConfigError, match="cannot be kept"):
        parse_keep(kind + ending)


@pytest.mark.parametrize("name", ["", "samples", "samples-70000", "samples-5-renormalized"])
def test_names_that_are_nearly_right_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="kept"):
        parse_keep(name)
