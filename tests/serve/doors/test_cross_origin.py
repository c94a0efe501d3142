"""Origins of pages, in the form in which browsers send them."""

import pytest

from paredown.errors import ConfigError
from paredown.serve.doors.cross_origin import CrossOrigins


def test_origins_are_compared_as_browsers_send_them():
    pages = CrossOrigins.of(
        ["HTTPS://App.Example.org:443", "http://localhost:3000", "http://[::1]"]
    )
    for origin in ("https://app.example.org", "http://localhost:3000", "http://[::1]"):
        assert pages.allows(origin)
    for origin in (
        "http://app.example.org",
        "http://localhost",
        "https://evil.example",
        "null",
        "",
    ):
        assert not pages.allows(origin)


def test_none_are_allowed_unless_named_and_a_star_is_any():
    assert not CrossOrigins().allows("https://app.example.org")
    assert CrossOrigins.of(["*"]).allows("https://whatever.example")


@pytest.mark.parametrize(
    "named", ["app.example.org", "https://", "https://a/", "https://a/b", "null", "", "https://*.a"]
)
def test_what_is_no_origin_is_refused_with_what_to_give(named):
    with pytest.raises(ConfigError, match="Give scheme, host and port"):
        CrossOrigins.of([named])
