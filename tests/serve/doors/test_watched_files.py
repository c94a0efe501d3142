"""Files that are replaced are noticed once, when they are left alone."""

from paredown.serve.doors.watched_files import WatchedFiles


def test_a_change_counts_once_and_when_it_is_over(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_text("1")
    second.write_text("1")
    files = WatchedFiles((first, second))
    assert not files.have_changed()
    first.write_text("22")
    assert not files.have_changed()  # the other one may follow
    second.write_text("22")
    assert not files.have_changed()
    assert files.have_changed()
    assert not files.have_changed()


def test_a_link_that_is_turned_and_a_file_that_goes_are_changes(tmp_path):
    (tmp_path / "old").write_text("1")
    (tmp_path / "new").write_text("1")
    link = tmp_path / "link"
    link.symlink_to("old")
    files = WatchedFiles((link,))
    link.unlink()
    link.symlink_to("new")
    assert [files.have_changed() for _ in range(3)] == [False, True, False]
    link.unlink()
    assert [files.have_changed() for _ in range(3)] == [False, True, False]
