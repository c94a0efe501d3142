"""Servers that may answer later, and for how long they ask to be left alone."""

import email.utils
import math
import time

import httpx2

# One that wants to be left alone for longer is asked again by hand.
MAX_WAIT_S = 300.0
_BUSY = {408, 409, 425, 429}


def is_busy(status: int) -> bool:
    """Returns whether the same request may be answered later."""
    return status in _BUSY or status >= 500


def wait_of(status: int, headers: httpx2.Headers) -> float | None:
    """Returns for how many seconds a busy server asks to be left alone; None where it does not."""
    return retry_after_s(headers.get("Retry-After")) if is_busy(status) else None


def retry_after_s(value: str | None) -> float | None:
    """Returns the seconds of a Retry-After header, which is a number or a date (RFC 9110); None
    where it is neither."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
