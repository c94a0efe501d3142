"""Names that a server may be called by."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paredown.errors import ConfigError
from paredown.serve.doors.hosts import AllowedHosts, host_name, is_loopback


@pytest.mark.parametrize(
    ("authority", "name"),
    [
        ("localhost", "localhost"),
        ("LocalHost:8000", "localhost"),
        ("localhost.", "localhost"),
        ("localhost.:80", "localhost"),
        ("127.0.0.1:", "127.0.0.1"),
        ("[::1]", "::1"),
        ("[0:0::0:1]:99999", "::1"),
        ("[::1", None),
        ("::1", None),
        ("[1.2.3.4]", None),
        ("localhost:80:80", None),
        ("localhost:x", None),
        ("me@localhost", None),
        ("localhost/", None),
        ("local host", None),
        ("", None),
        (".", None),
        (":80", None),
    ],
)
def test_a_name_out_of_an_authority(authority, name):
    assert host_name(authority) == name


@given(st.text(max_size=30))
def test_any_text_is_a_name_or_none(text):
    name = host_name(text)
    assert name is None or (name and name == name.lower() and not set(name) & set("/@[] \n"))


def test_on_loopback_its_names_the_bound_address_and_those_that_were_given():
    hosts = AllowedHosts.of("127.0.0.9", ("Models.Example.org.", "fd00::1", "[fd00::2]"))
    for name in ("localhost", "127.0.0.1", "[::1]:1", "127.0.0.9", "models.example.ORG"):
        assert hosts.allows(name)
    assert hosts.allows("[fd00::1]:8000")
    assert hosts.allows("[fd00:0::2]")
    for name in (
        "127.0.0.2",
        "evil.example",
        "localhost..",
        "xlocalhost",
        "localhost.evil.example",
    ):
        assert not hosts.allows(name)


def test_elsewhere_any_name_unless_some_were_given():
    assert AllowedHosts.of("0.0.0.0").allows("whatever")
    hosts = AllowedHosts.of("192.168.1.5", ["models.example"])
    assert hosts.allows("192.168.1.5:8000")
    assert hosts.allows("localhost")
    assert not hosts.allows("whatever")


@pytest.mark.parametrize("name", ["", "http://x", "x:80", "[::1]:80", "a b", "*", "x/", "[x]", "é"])
def test_what_is_no_name_is_refused_with_what_to_give(name):
    with pytest.raises(ConfigError, match="Give the name or address alone"):
        AllowedHosts.of("127.0.0.1", [name])


def test_addresses_of_loopback():
    for address in ("127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"):
        assert is_loopback(address)
    for address in ("0.0.0.0", "::", "10.0.0.1", "localhost", "::ffff:10.0.0.1", ""):
        assert not is_loopback(address)
