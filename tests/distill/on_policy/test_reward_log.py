"""The means of the first and the last tenth of the steps are told."""

from paredown.distill.on_policy.reward_log import RewardLog


def test_the_beginning_and_the_end_are_told() -> None:
    log = RewardLog()
    assert log.notes() == ()
    for step in range(20):
        log.add(step, [step, step + 1.0])
    assert log.notes() == (
        "mean reward from 1 in the first 2 steps to 19 in the last, of 20 steps with rewards",
    )
