"""The digest of a folder changes with any name and any byte, and with nothing that tests write."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st
from tools.conformance.folder_digest import folder_digest

FILES = st.dictionaries(st.text("abc", min_size=1, max_size=3), st.binary(max_size=4), max_size=4)


def digest(files: dict[str, bytes]) -> str:
    with TemporaryDirectory() as folder:
        for name, content in files.items():
            (Path(folder) / name).write_bytes(content)
        return folder_digest(Path(folder))


@given(FILES, FILES)
def test_two_folders_have_one_digest_where_their_files_are_the_same(
    left: dict[str, bytes], right: dict[str, bytes]
) -> None:
    assert (digest(left) == digest(right)) == (left == right)


def test_what_tests_write_is_no_part_of_it(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "test_x.py").write_text("x")
    before = folder_digest(tmp_path)
    (tmp_path / "a" / "__pycache__").mkdir()
    (tmp_path / "a" / "__pycache__" / "test_x.pyc").write_bytes(b"\0")
    (tmp_path / "link").symlink_to("/etc")
    assert folder_digest(tmp_path) == before
    (tmp_path / "a" / "test_y.py").write_text("x")
    assert folder_digest(tmp_path) != before
