"""The encoder benchmark: texts of the length it says, and clients that count whole answers."""

import json
import random
import subprocess
import sys

from benchmarks.encoder_serving import make_texts
from drivers.encoder_server import NAME, encoder_server, toy_model
from fakes.scripted_encoder import ScriptedEncoder


def test_texts_have_the_length_that_is_asked_for():
    model = toy_model()
    for num_tokens in (4, 16, 60):
        for text in make_texts(model, num_tokens, 5, random.Random(1)):
            own = model.tokenizer.encode(text)
            assert len(own) + model.num_special_tokens == num_tokens


def run_client(url: str, body: object) -> subprocess.CompletedProcess[str]:
    host, port = url.removeprefix("http://").split(":")
    command = [sys.executable, "-m", "benchmarks.encoder_client", host, port, "3", "0.3"]
    bodies = json.dumps([json.dumps(body)])
    return subprocess.run(command, input=bodies, capture_output=True, text=True, check=False)


def test_clients_count_the_answers_that_the_server_gave():
    model = toy_model()
    with encoder_server(model, ScriptedEncoder(spec=model.spec)) as server:
        told = json.loads(run_client(server.url, {"model": NAME, "input": ["a", "b"]}).stdout)
        assert told["num_answers"] == server.worker.stats.num_requests > 3
        assert told["seconds"] > 0
        failed = run_client(server.url, {"model": NAME, "input": []})
        assert failed.returncode != 0
        assert "input is empty" in failed.stderr
