"""Anonymous memory, read off another process."""

import subprocess
import sys

import pytest

from benchmarks.real.peak_memory import anonymous_bytes, peak_anonymous_bytes


def test_a_status_has_kibibytes() -> None:
    assert anonymous_bytes("Name:\tx\nRssAnon:\t    12 kB\n") == 12 << 10
    assert anonymous_bytes("Name:\tx\nState:\tZ (zombie)\n") == 0


def test_the_peak_is_seen() -> None:
    hold = "import time; x = bytearray(b'1') * (64 << 20); time.sleep(0.2)"
    assert 64 << 20 <= peak_anonymous_bytes([sys.executable, "-c", hold]) < 128 << 20


def test_a_command_that_fails_is_told() -> None:
    with pytest.raises(subprocess.CalledProcessError):
        peak_anonymous_bytes([sys.executable, "-c", "raise SystemExit(3)"])
