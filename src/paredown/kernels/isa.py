"""Which instruction set the native core runs with: the best one, or what PAREDOWN_ISA forces."""

import os

from paredown.errors import ConfigError
from paredown.kernels import _core

ENVIRONMENT_VARIABLE = "PAREDOWN_ISA"


def supported_isas() -> list[str]:
    """Names this build knows and this processor has, the preferred one last."""
    return _core.supported_isas()


def chosen_isa() -> str:
    """The instruction set in force. Raises ConfigError when the forced one is not there."""
    forced = os.environ.get(ENVIRONMENT_VARIABLE, "")
    supported = supported_isas()
    if not forced:
        return supported[-1]
    if forced not in supported:
        raise ConfigError(
            f"{ENVIRONMENT_VARIABLE} names an instruction set that is not available",
            seen=forced,
            remedy=f"Use one of {', '.join(supported)}, or unset it.",
        )
    return forced
