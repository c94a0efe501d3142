"""`paredown serve` as a process: keys, TLS, signals, the log of requests."""

import json
import signal
import ssl
import threading
import time

import httpx
import pytest
import trustme

from cli.verbs.test_serve import serving
from paredown.cli.main import main

KEY, NEW_KEY = "alices-key-0123456789", "alices-new-key-0123456789"
LONG = {"prompt": "He said", "max_tokens": 1900, "ignore_eos": True, "n": 64}


@pytest.fixture
def keys(tmp_path):
    path = tmp_path / "keys.txt"
    path.write_text(f"alice: {KEY}\n")
    path.chmod(0o600)
    return path


def test_other_machines_are_let_in_with_keys_or_by_a_word(keys, capsys):
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PAREDOWN_API_KEY", raising=False)
        assert main(["serve", "--host", "0.0.0.0"]) == 2
        assert "--no-api-key" in capsys.readouterr().err
        patch.setenv("PAREDOWN_API_KEY", KEY)
        assert main(["serve", "--host", "0.0.0.0", "--no-api-key"]) == 2
        assert "keys, and no keys" in capsys.readouterr().err
    for words in (("--no-api-key",), ("--api-key-file", str(keys))):
        with serving("--pages", "256", "--host", "0.0.0.0", *words) as (process, ready):
            url = ready["url"].replace("0.0.0.0", "127.0.0.1")
            wants_key = httpx.get(f"{url}/v1/models").status_code == 401
            assert wants_key == (words[0] == "--api-key-file")
            process.send_signal(signal.SIGTERM)
            assert ("anyone who can reach" in process.stderr.read()) != wants_key


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--api-key-file", "/nothing/here"), "cannot be read"),
        (("--tls-cert", "/nothing/here"), "TLS needs a certificate and its key"),
        (("--tls-cert", "/nothing/here", "--tls-key", "/nothing"), "TLS files"),
        (("--cors-origin", "app.example.org"), "not the origin of a page"),
        (("--alias", ""), "not a name for a model"),
        (("--log-requests", "xml"), "choose from"),
    ],
)
def test_options_of_doors_that_make_no_sense_are_refused(words, says, capsys):
    assert main(["serve", *words]) == 2
    assert says in capsys.readouterr().err


def test_keys_are_read_again_at_a_hang_up_and_the_environment_is_not_passed_on(keys):
    keys.chmod(0o644)
    with serving("--pages", "256", "--api-key-file", str(keys)) as (process, ready):
        with httpx.Client(base_url=ready["url"]) as client:
            assert client.get("/v1/models", headers={"x-api-key": KEY}).status_code == 200
            keys.write_text(f"alice: {NEW_KEY}\n")
            process.send_signal(signal.SIGHUP)
            deadline_s = time.monotonic() + 10
            while client.get("/v1/models", headers={"x-api-key": KEY}).status_code == 200:
                assert time.monotonic() < deadline_s
                time.sleep(0.05)
            assert client.get("/v1/models", headers={"x-api-key": NEW_KEY}).status_code == 200
        process.send_signal(signal.SIGTERM)
        told = process.stderr.read()
    assert "other users of this machine can read it" in told
    assert "0123456789" not in told


def test_lines_of_requests_are_json_without_what_was_asked():
    with serving("--pages", "256") as (process, ready):
        body = {"prompt": "a secret of mine", "max_tokens": 4}
        assert httpx.post(f"{ready['url']}/v1/completions", json=body).status_code == 200
        process.send_signal(signal.SIGTERM)
        told = process.stderr.read()
    (line,) = [json.loads(one) for one in told.splitlines() if one.startswith("{")]
    assert (line["path"], line["status"], line["completion_tokens"]) == ("/v1/completions", 200, 4)
    assert "secret" not in told


def test_answers_over_tls(tmp_path):
    authority = trustme.CA()
    made = authority.issue_cert("127.0.0.1")
    certificate, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    made.cert_chain_pems[0].write_to_path(certificate)
    made.private_key_pem.write_to_path(key)
    key.chmod(0o600)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    words = ("--tls-cert", str(certificate), "--tls-key", str(key))
    with serving("--pages", "256", *words) as (_, ready):
        assert ready["url"].startswith("https://127.0.0.1:")
        assert httpx.get(f"{ready['url']}/ready", verify=context).json() == {"status": "ready"}


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_at_once(sent):
    with serving("--pages", "2048") as (process, ready):
        errors = []

        def ask():
            try:
                httpx.post(f"{ready['url']}/v1/completions", json=LONG, timeout=60)
            except httpx.HTTPError as error:
                errors.append(error)

        asking = threading.Thread(target=ask)
        asking.start()
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert process.poll() is None
        sent_s = time.monotonic()
        process.send_signal(sent)
        assert process.wait(10) == 128 + sent
        assert time.monotonic() - sent_s < 3
        asking.join(10)
        assert errors
        told = process.stderr.read()
        assert "stopped at once" in told
        assert "Traceback" not in told
