"""Where the user's caches lie, for users without a home too, as containers have them."""

import pwd
from pathlib import Path

import pytest

from paredown.user_cache import user_cache_folder


def nobody(number: int) -> object:
    raise KeyError(f"uid not found: {number}")


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"HOME": "/h"}, "/h/.cache/paredown"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "/x"}, "/x/paredown"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "relative"}, "/h/.cache/paredown"),
        ({"XDG_CACHE_HOME": "/x"}, "/x/paredown"),
        ({}, None),
        ({"HOME": "relative"}, None),
    ],
)
def test_where_it_lies(
    variables: dict[str, str], folder: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert user_cache_folder() == (None if folder is None else Path(folder))
