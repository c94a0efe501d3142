import socket

import pytest

from paredown.errors import ConfigError
from paredown.serve.server import Listen


def test_the_socket_names_tcp_so_that_asyncio_does_not_delay_small_writes():
    with Listen(port=0).open_socket() as sock:
        assert sock.proto == socket.IPPROTO_TCP
        assert sock.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize("listen", [Listen(port=70_000), Listen(host="no such host", port=0)])
def test_an_address_that_cannot_be_had_is_a_clear_error(listen):
    with pytest.raises(ConfigError, match="cannot listen"):
        listen.open_socket()


def test_a_port_in_use_is_a_clear_error():
    with Listen(port=0).open_socket() as sock:
        port = sock.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port}"):
            Listen(port=port).open_socket()
