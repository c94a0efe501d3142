"""Keys that come and go while the server runs."""

import os

import pytest

from paredown.errors import ConfigError
from paredown.serve.doors.key_ring import KeyRing

OLD, NEW = b"the-old-key-of-alice", b"the-new-key-of-alice"


@pytest.fixture
def path(tmp_path):
    found = tmp_path / "keys.txt"
    found.write_bytes(b"alice: " + OLD)
    found.chmod(0o600)
    return found


def test_keys_of_a_file_and_of_the_environment(path):
    ring = KeyRing(path, "bob: the-key-of-bob-here")
    assert ring.name_of(OLD) == "alice"
    assert ring.name_of(b"the-key-of-bob-here") == "bob"
    assert KeyRing(None, "the-key-of-nobody").name_of(b"the-key-of-nobody") == "line-1"


def test_a_file_that_changed_is_read_again(path):
    ring = KeyRing(path)
    path.write_bytes(b"alice: " + NEW)
    os.utime(path, ns=(1, 1))
    ring.refresh()
    assert ring.name_of(OLD) == "alice"
    ring.refresh()
    assert ring.name_of(OLD) is None
    assert ring.name_of(NEW) == "alice"


def test_a_file_is_read_at_once_when_that_is_asked_for(path):
    ring = KeyRing(path)
    path.write_bytes(b"alice: " + NEW)
    ring.refresh(at_once=True)
    assert (ring.name_of(OLD), ring.name_of(NEW)) == (None, "alice")


@pytest.mark.parametrize("content", [b"", b"short", b"\xff\xfe", None])
def test_a_file_that_is_spoilt_later_leaves_the_old_keys_and_one_line(path, content, caplog):
    ring = KeyRing(path)
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    for _ in range(5):
        ring.refresh()
    assert ring.name_of(OLD) == "alice"
    (record,) = caplog.records
    assert "the API keys stay as they were" in record.getMessage()


@pytest.mark.parametrize("content", [b"", b"short", b"\xff\xfe", b"x" * 1_000_001])
def test_a_file_that_is_spoilt_from_the_start_is_refused(path, content):
    path.write_bytes(content)
    with pytest.raises(ConfigError):
        KeyRing(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        KeyRing(path.with_name("nothing"))
    with pytest.raises(ConfigError, match="cannot be read"):
        KeyRing(path.parent)


def test_a_file_that_others_can_read_is_noticed(path):
    ring = KeyRing(path)
    assert not ring.is_readable_by_others
    path.chmod(0o640)
    assert ring.is_readable_by_others
    assert not KeyRing(None, "the-key-of-nobody").is_readable_by_others
