"""Chooses the native core's instruction set: the best one, or the one that PAREDOWN_ISA forces."""

import os

from paredown.errors import ConfigError
from paredown.kernels import _core

ENVIRONMENT_VARIABLE = "PAREDOWN_ISA"
# This project has tested these sets only under an emulator, never on a processor.
EMULATED_ONLY = frozenset({"neon", "neon_dotprod", "neon_i8mm"})


def known_isas() -> list[str]:
    """Returns the names this build has kernels for, the preferred one last."""
    return [name for name, _ in _core.known_isas()]


def supported_isas() -> list[str]:
    """Returns the known names that this processor and system can run, the preferred one last."""
    return _core.supported_isas()


def unavailable_isas() -> dict[str, str]:
    """Returns the known names that cannot run here, each with the reason."""
    return {name: reason for name, reason in _core.known_isas() if reason}


def chosen_isa() -> str:
    """Returns the instruction set in force. Raises ConfigError if the forced one is not
    available."""
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


def explain_isa() -> str:
    """Explains in one sentence why the instruction set in force was chosen."""
    chosen, supported = chosen_isa(), supported_isas()
    if chosen != supported[-1]:
        reason = f"forced by {ENVIRONMENT_VARIABLE} (the best here is {supported[-1]})"
    else:
        reason = f"the widest this processor has of {', '.join(supported)}"
    if chosen in EMULATED_ONLY:
        reason += "; tested under an emulator only, never on such a processor"
    return f"{chosen}: {reason}"
