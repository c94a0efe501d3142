"""The means of the first and the last tenth of the steps are told, and where others came before."""

from paredown.distill.on_policy.reward_log import RewardLog


def test_the_beginning_and_the_end_are_told() -> None:
    log = RewardLog()
    assert log.notes() == ()
    for step in range(20):
        log.add(step, [step, step + 1.0])
    assert log.notes() == (
        "mean reward from 1 in the first 2 steps to 19 in the last, of 20 steps with rewards",
    )


def test_a_resumed_run_tells_that_it_does_not_know_the_steps_before() -> None:
    log = RewardLog()
    for step in (7, 8):
        log.add(step, [float(step)])
    assert log.notes() == (
        "mean reward from 7 in the first step to 8 in the last, of 2 steps with rewards since the "
        "run was resumed",
    )
