"""Which answers are no last word, and how long they ask to wait."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx2

from paredown.distill.http.busy import is_busy, retry_after_s, wait_of


def test_busy_are_those_that_may_answer_later() -> None:
    busy = [status for status in range(100, 600) if is_busy(status)]
    assert busy == [408, 409, 425, 429, *range(500, 600)]


def test_only_those_that_are_busy_are_waited_for() -> None:
    headers = httpx2.Headers({"retry-after": "7"})
    assert wait_of(429, headers) == wait_of(503, headers) == 7.0
    assert wait_of(400, headers) is None
    assert wait_of(503, httpx2.Headers()) is None


def test_retry_after_is_a_number_or_a_date() -> None:
    assert retry_after_s("1.5") == 1.5
    assert retry_after_s("-3") == 0.0
    assert retry_after_s(format_datetime(datetime.now(UTC) - timedelta(days=1), usegmt=True)) == 0.0
    later = retry_after_s(format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True))
    assert later is not None
    assert 28 < later <= 30
    for odd in (None, "", "soon", "nan", "inf", "1e999"):
        assert retry_after_s(odd) is None
