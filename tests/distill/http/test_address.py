"""An address is http or https, and holds nothing that an error would give away."""

import pytest

from paredown.distill.http.address import checked_address
from paredown.errors import ConfigError

SECRET = "pw-1234"


def check(address: str) -> str:
    return str(
        checked_address(address, what="no address", remedy="Give one.", without_password="Not so.")
    )


@pytest.mark.parametrize(
    "address",
    [
        "http://localhost:8000",
        "https://a.example/v1/x?y=1",
        "http://127.0.0.1:9/score",
        "http://[::1]:9/score",
    ],
)
def test_an_address_is_taken_as_it_is(address: str) -> None:
    assert check(address) == address


@pytest.mark.parametrize(
    "address",
    ["", "host", "host:80", "ftp://a", "http://", "file:///etc/passwd", "http://[", "http://a/#b"],
)
def test_what_is_none_is_refused(address: str) -> None:
    with pytest.raises(ConfigError) as raised:
        check(address)
    assert (raised.value.what, raised.value.seen) == ("no address", address)


@pytest.mark.parametrize("scheme", ["http://", "https://", "ftp://", ""])
@pytest.mark.parametrize("host", ["a.example", "a.example:9/v1", "[", "a b"])
@pytest.mark.parametrize("name", [f"me:{SECRET}", SECRET])
def test_a_password_is_refused_and_never_shown(scheme: str, name: str, host: str) -> None:
    with pytest.raises(ConfigError) as raised:
        check(f"{scheme}{name}@{host}")
    assert SECRET not in str(raised.value)
    is_sound = scheme.startswith("http") and host.startswith("a.")
    assert (raised.value.remedy == "Not so.") == is_sound
