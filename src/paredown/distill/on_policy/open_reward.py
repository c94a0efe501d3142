"""Opens the reward that a user names: a function of theirs, or an address.

Code is loaded from the module that they name, and from nowhere else; no file of a model is code.
"""

import importlib
import re

from paredown.distill.on_policy.http_reward import HttpReward
from paredown.distill.on_policy.reward import CallableReward, Reward
from paredown.errors import ConfigError

_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


def open_reward(name: str) -> Reward:
    """Returns the reward "module:callable", or that of an address "http://...". The callable gets a
    prompt and an answer and returns a number. Raises ConfigError for a name of neither kind, and
    for a module or a callable that is not there or cannot be loaded."""
    if name.startswith(("http://", "https://")):
        return HttpReward(url=name)
    if _FUNCTION.fullmatch(name) is None:
        raise ConfigError(
            "a reward is neither a function nor an address",
            seen=name,
            remedy="Give --reward module:callable, or an http address.",
        )
    module_name, _, function_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever a stranger's module raises
        raise ConfigError(
            f"the module of the reward cannot be loaded: {type(error).__name__}: {error}",
            seen=name,
            remedy="Name a module that Python finds, as through PYTHONPATH.",
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise ConfigError(
            "the module has no such function",
            seen=name,
            remedy="Name a function of a prompt and an answer.",
        )
    return CallableReward(function=function)
