"""Progress where nobody looks at a terminal: a line now and then, with the time left."""

import io

from paredown.cli.progress_bar import FIRST_LINE_S, LINE_EVERY_S, ProgressBar, ProgressLines


class _Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_lines_come_now_and_then_with_the_time_left() -> None:
    clock, stream = _Clock(), io.StringIO()
    bar = ProgressBar(ProgressLines(stream, clock), "starting")
    shown = []
    for second in range(0, 101):
        clock.now = 100.0 + second
        bar.show_share("compressing", second / 200)
        shown.append(stream.getvalue().count("\n"))
    assert shown[int(FIRST_LINE_S) - 1] == 0
    assert shown[int(FIRST_LINE_S)] == 1
    assert shown[int(FIRST_LINE_S + LINE_EVERY_S) - 1] == 1
    assert shown[-1] == 1 + int((100 - FIRST_LINE_S) // LINE_EVERY_S)
    assert stream.getvalue().splitlines()[0] == "5%: compressing, 3 min 10 s left"


def test_short_work_prints_nothing_and_unknown_ends_are_not_guessed() -> None:
    clock, stream = _Clock(), io.StringIO()
    bar = ProgressBar(ProgressLines(stream, clock), "starting")
    bar.show_count(1, 2)
    assert stream.getvalue() == ""
    clock.now += 20
    bar.show_note("sampling")
    assert stream.getvalue() == "20 s: sampling\n"


def test_counts_keep_what_is_done() -> None:
    clock, stream = _Clock(), io.StringIO()
    bar = ProgressBar(ProgressLines(stream, clock), "measuring losses")
    clock.now += 10
    bar.show_count(1, 100)
    clock.now += LINE_EVERY_S
    bar.show_count(0, 0)
    assert stream.getvalue() == "1%: measuring losses\n100%: measuring losses, 0 s left\n"
