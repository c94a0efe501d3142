import socket
import threading

import pytest

from drivers.running_server import running_server
from fakes.toy_executor import ToyTokenizer
from paredown.errors import ConfigError
from paredown.serve.server import Listen


def test_the_socket_names_tcp_so_that_asyncio_does_not_delay_small_writes():
    with Listen(port=0).open_socket() as sock:
        assert sock.proto == socket.IPPROTO_TCP
        assert sock.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize("options", [{"port": 70_000}, {"port": -1}, {"drain_s": -1}])
def test_senseless_options_are_refused(options):
    with pytest.raises(ConfigError, match="cannot listen"):
        Listen(**options)


def test_a_host_that_is_not_there_is_a_clear_error():
    with pytest.raises(ConfigError, match="no such host"):
        Listen(host="no such host", port=0).open_socket()


def test_a_port_in_use_is_a_clear_error():
    with Listen(port=0).open_socket() as sock:
        port = sock.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port}"):
            Listen(port=port).open_socket()


class NotingTokenizer(ToyTokenizer):
    def __init__(self):
        super().__init__()
        self.threads = []

    def encode(self, text):
        self.threads.append(threading.get_ident())
        return super().encode(text)


def test_the_texts_of_a_request_that_are_long_together_are_encoded_beside_the_event_loop():
    tokenizer = NotingTokenizer()
    with running_server(tokenizer=tokenizer) as server:
        for prompt in ("x", ["x" * 200] * 64):
            body = {"model": "toy", "prompt": prompt, "max_tokens": 1}
            assert server.client.post("/v1/completions", json=body).status_code == 200
    event_loop, *others = tokenizer.threads
    assert len(others) == 64
    assert event_loop not in others
