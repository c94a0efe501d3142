"""S20: TLS by files, renewed while the server runs; who shakes no hands holds no place for long."""

import json
import socket
import ssl
import time

import httpx
import pytest
import trustme

from drivers.running_server import running_server
from paredown.errors import ConfigError
from paredown.serve.doors import connection as connection_file
from paredown.serve.doors import tls_door
from paredown.serve.doors.certificates import Certificates

BODY = {"model": "toy", "prompt": "x", "max_tokens": 40, "ignore_eos": True}


class Files:
    """A certificate in files, and clients that trust its maker."""

    def __init__(self, folder):
        self.authority = trustme.CA()
        self.certificate, self.key = folder / "chain.pem", folder / "key.pem"
        self.write()

    def write(self):
        made = self.authority.issue_cert("127.0.0.1", "localhost")
        chain = b"".join(one.bytes() for one in made.cert_chain_pems)
        self.certificate.write_bytes(chain)
        self.key.write_bytes(made.private_key_pem.bytes())
        self.key.chmod(0o600)
        return made

    @property
    def context(self):
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        return context

    def read(self):
        return Certificates(self.certificate, self.key)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return Files(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def server(files):
    files.write()
    with running_server(certificates=files.read()) as running:
        yield running


def address(server):
    host, port = server.url.removeprefix("https://").split(":")
    return host, int(port)


def shown_certificate(server, files):
    with (
        socket.create_connection(address(server), timeout=10) as sock,
        files.context.wrap_socket(sock, server_hostname="127.0.0.1") as tls,
    ):
        return tls.getpeercert()["serialNumber"], tls.version(), tls.selected_alpn_protocol()


def test_answers_come_over_tls_whole_and_in_pieces(server, files):
    assert server.url.startswith("https://")
    with httpx.Client(base_url=server.url, verify=files.context) as client:
        whole = client.post("/v1/completions", json={**BODY, "seed": 3}).json()["choices"][0][
            "text"
        ]
        body = {**BODY, "seed": 3, "stream": True}
        # Slower than events come.
        server.engine.executor.delay_s = 0.006
        with client.stream("POST", "/v1/completions", json=body) as reply:
            lines = [line for line in reply.iter_lines() if line]
        assert lines.pop() == "data: [DONE]"
        pieces = [json.loads(line.removeprefix("data: ")) for line in lines]
        assert "".join(one["choices"][0]["text"] for one in pieces) == whole != ""


def test_who_does_not_trust_the_certificate_gets_nothing(server):
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.url}/health")


def test_old_protocols_are_refused(files):
    assert files.read().context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_plain_http_is_closed_without_a_line(server, capsys):
    with socket.create_connection(address(server), timeout=10) as sock:
        sock.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        received = b""
        try:
            while part := sock.recv(4096):
                received += part
        except ConnectionResetError:
            pass
    assert b"HTTP" not in received
    assert "Traceback" not in capsys.readouterr().err


def test_a_new_certificate_is_shown_to_new_connections_and_old_ones_go_on(server, files):
    before = shown_certificate(server, files)
    assert before[1:] == ("TLSv1.3", None)
    with httpx.Client(base_url=server.url, verify=files.context) as client:
        assert client.get("/health").status_code == 200
        files.write()
        server.wait_until(lambda: shown_certificate(server, files)[0] != before[0])
        assert client.get("/health").status_code == 200


@pytest.mark.parametrize("fault", ["no file", "not PEM", "another key"])
def test_files_that_are_spoilt_leave_the_old_certificate_and_one_line(server, files, caplog, fault):
    before = shown_certificate(server, files)
    good = files.key.read_bytes()
    if fault == "no file":
        files.key.unlink()
    elif fault == "not PEM":
        files.key.write_bytes(b"nothing of use")
    else:
        files.key.write_bytes(files.authority.issue_cert("x.example").private_key_pem.bytes())
    server.wait_until(lambda: "stays as it was" in caplog.text)
    time.sleep(0.3)
    assert caplog.text.count("stays as it was") == 1
    assert shown_certificate(server, files) == before
    files.key.write_bytes(good)


def test_what_is_no_certificate_is_refused_at_the_start(files, tmp_path):
    files.write()
    empty = tmp_path / "empty"
    empty.touch()
    for certificate, key in (
        (empty, files.key),
        (files.certificate, empty),
        (tmp_path / "nothing", files.key),
        (tmp_path, files.key),
        (files.key, files.certificate),
    ):
        with pytest.raises(ConfigError, match="TLS files"):
            Certificates(certificate, key)


def test_a_key_with_a_password_is_refused_and_nobody_is_asked(files, tmp_path):
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(files.write().private_key_pem.bytes(), None)
    sealed = tmp_path / "sealed.pem"
    sealed.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret-word"),
        )
    )
    with pytest.raises(ConfigError, match="without a password"):
        Certificates(files.certificate, sealed)


def test_a_key_that_others_can_read_is_noticed(files):
    certificates = files.read()
    assert not certificates.is_readable_by_others
    files.key.chmod(0o644)
    assert certificates.is_readable_by_others


def test_who_shakes_no_hands_has_a_place_and_loses_it(files, monkeypatch):
    monkeypatch.setattr(tls_door, "HANDSHAKE_TIMEOUT_S", 0.5)
    with running_server(certificates=files.read(), address_connections=4) as server:
        silent = [socket.create_connection(address(server), timeout=10) for _ in range(4)]
        try:
            time.sleep(0.1)
            # A fifth takes the place of the one that has waited longest.
            with httpx.Client(base_url=server.url, verify=files.context) as client:
                assert client.get("/health").status_code == 200
            for sock in silent:
                assert closes(sock)
        finally:
            for sock in silent:
                sock.close()


def closes(sock):
    try:
        return sock.recv(100) == b""
    except ConnectionResetError:
        return True


def test_who_reads_nothing_is_cut_off_over_tls_too(files, monkeypatch):
    monkeypatch.setattr(connection_file, "WRITE_TIMEOUT_S", 0.3)
    with running_server(certificates=files.read()) as server:
        with socket.create_connection(address(server), timeout=10) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            with files.context.wrap_socket(sock, server_hostname="127.0.0.1") as tls:
                tls.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 40)
                server.wait_until(lambda: is_cut_off(tls))
        with httpx.Client(base_url=server.url, verify=files.context) as client:
            assert client.get("/health").status_code == 200


def test_clients_that_say_no_goodbye_do_not_hold_the_server(files):
    with httpx.Client(verify=files.context) as client:
        with running_server(certificates=files.read()) as server:
            assert client.get(f"{server.url}/health").status_code == 200
            start_s = time.monotonic()
        # The client keeps its connection, and reads nothing of it.
        assert time.monotonic() - start_s < 5


def test_an_answer_is_whole_before_its_connection_ends(files, monkeypatch):
    monkeypatch.setattr(connection_file, "GOODBYE_S", 0.05)
    with (
        running_server(certificates=files.read()) as server,
        socket.create_connection(address(server), timeout=10) as sock,
    ):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with files.context.wrap_socket(sock, server_hostname="127.0.0.1") as tls:
            ask = "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            tls.sendall(ask.encode())
            received = bytearray()
            while part := tls.recv(8192):
                received += part
                time.sleep(0.01)
        head, _, body = received.partition(b"\r\n\r\n")
        assert f"content-length: {len(body)}".encode() in head.lower()


def is_cut_off(tls):
    try:
        tls.sendall(b"x")
    except OSError:
        return True
    return False
