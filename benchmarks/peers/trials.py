"""Which of an engine's settings is the fastest, found with few long runs or many short ones."""

from collections.abc import Callable, Sequence
from typing import TypeVar

# Each contender runs so often at least, ...
NUM_TRIALS = 3
# ... and, where runs are short, for about so long: a neighbour can double the time of a short one.
TRIAL_S = 1.0
# A run of so many seconds is not repeated: it has seen what neighbours do, and settings are many.
LONG_S = 10.0
# A long run that is so much slower than the fastest is not repeated.
MAX_RATIO = 1.3

Setting = TypeVar("Setting")


def try_settings(
    settings: Sequence[Setting], run: Callable[[Setting], float]
) -> dict[Setting, float]:
    """The least seconds of each setting's runs, which alternate. The first run of each must not
    be the engine's first work with it."""
    seconds = {setting: run(setting) for setting in settings}
    limit = max(TRIAL_S, MAX_RATIO * min(seconds.values()))
    contenders = [setting for setting in settings if seconds[setting] <= limit]
    if len(contenders) == 1 or min(seconds.values()) > LONG_S:
        return seconds
    longest = max(seconds[setting] for setting in contenders)
    for _ in range(max(NUM_TRIALS, int(TRIAL_S / longest)) - 1):
        for setting in contenders:
            seconds[setting] = min(seconds[setting], run(setting))
    return seconds
