"""Rotary scaling in GGUF. Linear scaling is metadata; Llama 3.1's is a tensor of factors that
divide the plain frequencies. Its parameters are not in the file and are recovered from the factors.
"""

import math

import numpy as np
import numpy.typing as npt

from paredown.errors import UnsupportedError
from paredown.spec.rotary import Rotary

# The precision of the factors, which are float32.
_TOLERANCE = 1e-5


def rope_factors(rotary: Rotary, head_dim: int) -> npt.NDArray[np.float32] | None:
    """Returns [head_dim / 2], or None where no factors are needed."""
    if rotary.scaling != "llama3":
        return None
    plain = np.array(Rotary(theta=rotary.theta).inverse_frequencies(head_dim))
    factors: npt.NDArray[np.float32] = plain / np.array(rotary.inverse_frequencies(head_dim))
    return factors.astype(np.float32)


def rotary_from_factors(theta: float, factors: npt.NDArray[np.float32]) -> Rotary:
    """Returns the llama3 scaling that gives these factors. Raises UnsupportedError where none does,
    or where the factors do not determine it.

    The inverse of a factor is 1 for short wavelengths, 1 / `factor` for long ones, and between them
    (1 - s) / factor + s with s = (original / wavelength - low) / (high - low). Two points of that
    ramp give the line; low is 1, since all three numbers may be scaled together.
    """
    head_dim = 2 * len(factors)
    plain = Rotary(theta=theta)
    if not (np.isfinite(factors).all() and factors.min() >= 1):
        raise _unsupported(factors)
    if factors.max() == 1:
        return plain
    factor = _tidy(float(factors.max()))
    shares = (1 / factors.astype(np.float64) - 1 / factor) / (1 - 1 / factor)
    per_position = np.array(plain.inverse_frequencies(head_dim)) / (2 * math.pi)
    ramp = (shares > _TOLERANCE) & (shares < 1 - _TOLERANCE)
    if ramp.sum() < 2:
        raise _unsupported(factors)
    slope, start = map(float, np.polyfit(per_position[ramp], shares[ramp], 1))
    if slope <= 0 or start >= 0:
        raise _unsupported(factors)
    rotary = Rotary(
        theta=theta,
        scaling="llama3",
        factor=factor,
        low_freq_factor=1.0,
        high_freq_factor=_tidy(1 - 1 / start),
        original_max_positions=round(-slope / start),
    )
    again = rope_factors(rotary, head_dim)
    if again is None or not np.allclose(again, factors, rtol=_TOLERANCE, atol=0):
        raise _unsupported(factors)
    return rotary


def _tidy(value: float) -> float:
    """Restores a number that was round before it was stored in float32."""
    rounded = round(value, 3)
    return rounded if math.isclose(rounded, value, rel_tol=_TOLERANCE) else value


def _unsupported(factors: npt.NDArray[np.float32]) -> UnsupportedError:
    return UnsupportedError(
        "the file scales rotary frequencies in a way that is not Llama 3.1's",
        seen=f"{len(factors)} factors from {factors.min():g} to {factors.max():g}",
        remedy="Use the model's Hugging Face folder.",
    )
