"""Which instruction set the native core runs with: the best one, or what PAREDOWN_ISA forces."""

import os

from paredown.errors import ConfigError
from paredown.kernels import _core

ENVIRONMENT_VARIABLE = "PAREDOWN_ISA"


def known_isas() -> list[str]:
    """Names this build has kernels for, in rising order of preference."""
    return [name for name, _ in _core.known_isas()]


def supported_isas() -> list[str]:
    """The known names that this processor and system can run, the preferred one last."""
    return _core.supported_isas()


def unavailable_isas() -> dict[str, str]:
    """The known names that cannot run here, and why."""
    return {name: reason for name, reason in _core.known_isas() if reason}


def chosen_isa() -> str:
    """The instruction set in force. Raises ConfigError when the forced one is not there."""
    forced = os.environ.get(ENVIRONMENT_VARIABLE, "")
    supported = supported_isas()
    if not forced:
        return supported[-1]
    if forced not in supported:
        reason = unavailable_isas().get(forced, "this build has no kernels for it")
        raise ConfigError(
            f"{ENVIRONMENT_VARIABLE} names an instruction set that is not available: {reason}",
            seen=forced,
            remedy=f"Use one of {', '.join(supported)}, or unset it.",
        )
    return forced
