"""The time as logs have it."""

from datetime import UTC, datetime


def now_text() -> str:
    """Returns the time of the day in UTC, as 2026-05-01T12:00:00.000Z."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
