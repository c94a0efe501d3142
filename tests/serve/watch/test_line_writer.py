"""Lines that nobody reads hold nobody up."""

import io
import threading
import time

from paredown.serve.watch import line_writer
from paredown.serve.watch.line_writer import LineWriter


class Pipe(io.StringIO):
    """Takes nothing until it is read."""

    def __init__(self):
        super().__init__()
        self.is_read = threading.Event()

    def write(self, text):
        self.is_read.wait(10)
        return super().write(text)


def test_lines_come_out_in_order(monkeypatch):
    monkeypatch.setattr(line_writer.sys, "stderr", found := io.StringIO())
    writer = LineWriter()
    for number in range(500):
        assert writer.write(f"{number}\n")
    writer.close()
    assert found.getvalue().split() == [str(number) for number in range(500)]


def test_who_writes_does_not_wait_for_who_reads(monkeypatch):
    monkeypatch.setattr(line_writer.sys, "stderr", pipe := Pipe())
    writer, start_s = LineWriter(max_waiting=10), time.monotonic()
    taken = [writer.write(f"{number}\n") for number in range(100)]
    # One is being written, at most.
    assert 10 <= sum(taken) <= 11
    writer.close(timeout_s=0.05)
    assert time.monotonic() - start_s < 5
    pipe.is_read.set()
    writer.close(timeout_s=5)
    assert len(pipe.getvalue().split()) == sum(taken)


def test_a_stream_that_is_closed_ends_nothing(monkeypatch):
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(line_writer.sys, "stderr", closed)
    writer = LineWriter()
    assert writer.write("a\n")
    writer.close()
