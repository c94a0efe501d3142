"""A signal in the middle of a write leaves nothing behind, hidden folders included."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from paredown.cli.stop_signals import stop_signals_raise
from paredown.stopped import StoppedError

# `compress` of the packaged draft model, which sends itself the signal when the folder is half
# full.
HALF_WRITTEN = """
import os, sys
from paredown.cli.main import main
from paredown.compress import folder_job

write_shards = folder_job.write_shards

def write_then_signal(folder, tensors):
    write_shards(folder, tensors)
    assert folder.name.startswith(".out.")
    os.kill(os.getpid(), int(sys.argv[1]))

folder_job.write_shards = write_then_signal
sys.exit(main(["compress", "draft", "-o", sys.argv[2], "--recipe", "int8"]))
"""


def write_half(folder: Path, sent: int, **options) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", HALF_WRITTEN, str(int(sent)), str(folder / "a" / "out")]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)


@pytest.mark.parametrize(
    ("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_in_the_middle_of_a_write_leaves_nothing(tmp_path: Path, sent, code) -> None:
    # Whoever runs the tests may ignore the signal: in the background, or under nohup.
    done = write_half(tmp_path, sent, preexec_fn=lambda: signal.signal(sent, signal.SIG_DFL))
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_signal_that_the_caller_ignores_is_ignored(tmp_path: Path) -> None:
    done = write_half(
        tmp_path,
        signal.SIGHUP,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    assert done.returncode == 0
    assert (tmp_path / "a" / "out" / "model.safetensors").exists()


def test_the_handlers_are_taken_back() -> None:
    before = signal.getsignal(signal.SIGHUP)
    with pytest.raises(StoppedError), stop_signals_raise():
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGHUP) is before


def test_a_second_signal_does_not_interrupt_the_cleaning_up() -> None:
    cleaned = []

    def stopped_twice() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGTERM)
            cleaned.append(True)

    with pytest.raises(StoppedError, match="stopped by SIGTERM"), stop_signals_raise():
        stopped_twice()
    assert cleaned


def test_other_threads_have_no_signals() -> None:
    seen = []

    def enter() -> None:
        with stop_signals_raise():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [signal.SIG_DFL]
