"""A loss is learned from what is kept where that says what the loss asks; else it is refused."""

import pytest

from paredown.distill.losses.jsd import JSD
from paredown.distill.losses.kl import KL
from paredown.distill.losses.reverse_kl import ReverseKL
from paredown.distill.losses.slim import SLIM
from paredown.distill.losses.soft_label import SoftLabel
from paredown.distill.losses.token_loss import TokenLoss
from paredown.distill.losses.top_share_kl import TopShareKL
from paredown.distill.teacher_logits.check_loss import check_loss
from paredown.distill.teacher_logits.keeps import parse_keep
from paredown.errors import ConfigError

VOCAB_SIZE = 1000
SAMPLES, TOP, TOP_50, NORMED = "samples-50", "top-49", "top-50", "top-50-renormalized"
ALL = {SAMPLES, TOP, TOP_50, NORMED, "whole"}


@pytest.mark.parametrize(
    ("loss", "fitting"),
    [
        (KL(), ALL),
        (SoftLabel(), ALL),
        (KL(temperature=2.0), ALL - {SAMPLES}),
        (SoftLabel(temperature=0.5), ALL - {SAMPLES}),
        (ReverseKL(), {TOP, TOP_50, "whole"}),
        (JSD(), {TOP, TOP_50, "whole"}),
        (JSD(beta=0.0), {TOP, TOP_50, "whole"}),
        (SLIM(), {TOP_50, "whole"}),
        (TopShareKL(share=0.05), {TOP_50, "whole"}),
        (TopShareKL(share=0.06), {"whole"}),
    ],
    # The order of a set differs between the processes of a run.
    ids=lambda value: "" if isinstance(value, set) else repr(value),
)
def test_each_loss_has_what_fits_it(loss: TokenLoss, fitting: set[str]) -> None:
    for name in ALL:
        if name in fitting:
            check_loss(parse_keep(name), loss, VOCAB_SIZE)
        else:
            with pytest.raises(ConfigError, match=name):
                check_loss(parse_keep(name), loss, VOCAB_SIZE)


def test_no_more_tokens_are_kept_than_there_are() -> None:
    with pytest.raises(ConfigError, match=r"top-1001 of 1,000 tokens"):
        check_loss(parse_keep("top-1001"), KL(), VOCAB_SIZE)
