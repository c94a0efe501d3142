"""`paredown serve` as a process, on the packaged model."""

import json
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import httpx
import openai
import pytest

from paredown.cli.main import main
from paredown.cli.options.schedule import step_budget_line
from paredown.engine.llm import LLM
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.schedule_config import ScheduleConfig

COMMAND = [sys.executable, "-m", "paredown.cli.main", "serve", "--port", "0", "--json"]


@contextmanager
def serving(*words):
    """What ignores hang-ups, as under nohup, starts what ignores them too: not this server."""
    ours = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        process = subprocess.Popen(
            [*COMMAND, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        signal.signal(signal.SIGHUP, ours)
    try:
        yield process, json.loads(process.stdout.readline())
    finally:
        process.kill()
        process.wait(10)
        process.stdout.close()
        process.stderr.close()


def test_the_server_answers_what_the_offline_api_answers():
    llm = LLM(num_pages=256, num_threads=1)
    with (
        serving("--pages", "256", "--name", "mine") as (_, ready),
        openai.OpenAI(base_url=f"{ready['url']}/v1", api_key="x", max_retries=0) as client,
    ):
        assert ready["model"] == "mine"
        assert httpx.get(f"{ready['url']}/health").json() == {"status": "ready"}
        reply = client.completions.create(
            model="mine", prompt="Once upon a time", max_tokens=30, seed=4
        )
        params = SamplingParams(max_tokens=30, seed=4)
        assert reply.choices[0].text == llm.generate("Once upon a time", params)[0].text
        messages = [{"role": "user", "content": "Hello."}]
        chat = client.chat.completions.create(
            model="mine", messages=messages, max_tokens=20, temperature=0
        )
        pieces = llm.stream_chat(messages, SamplingParams(temperature=0, max_tokens=20))
        assert chat.choices[0].message.content == "".join(piece.text for piece in pieces)


def test_memory_policy_and_step_budget_are_chosen_and_told():
    words = ("--kv-memory", "30MB", "--target-itl-ms", "40", "--policy", "deadline")
    threads = ("--threads", "2", "--decode-threads", "1")
    with serving(*words, *threads, "--fair-shares", "--no-prefix-cache") as (process, ready):
        assert httpx.get(f"{ready['url']}/health").json() == {"status": "ready"}
        process.send_signal(signal.SIGTERM)
        told = process.stderr.read()
    assert "KV pages: 732 of 16 tokens x 5 layers x" in told
    assert "tokens (measured for --target-itl-ms); at most" in told
    assert "threads: 2 for prefill, 1 for decode (steps of at most 64 tokens)" in told
    assert "step budget" in told
    assert "for 40 ms between tokens" in told


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--pages", "5", "--kv-memory", "1GB"), "not allowed with"),
        (("--max-step-tokens", "5", "--target-itl-ms", "9"), "not allowed with"),
        (("--kv-memory", "much"), "is not a number of bytes; write 2GB"),
        (("--policy", "lifo"), "choose from"),
        (("--kv-dtype", "int3"), "unknown format of keys and values"),
        (("--kv-dtype", "int4,middle=bf16"), "does not say how keys and values are kept"),
    ],
)
def test_senseless_options_are_refused(words, message, capsys):
    assert main(["serve", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("sent", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130), (signal.SIGHUP, 0)]
)
def test_a_stop_signal_drains_and_exits(sent, code):
    with serving("--pages", "256") as (process, ready):
        replies = []
        body = {"prompt": "He said", "max_tokens": 1500, "ignore_eos": True}
        asking = threading.Thread(
            target=lambda: replies.append(
                httpx.post(f"{ready['url']}/v1/completions", json=body, timeout=60)
            )
        )
        asking.start()
        time.sleep(0.3)
        process.send_signal(sent)
        asking.join(60)
        assert replies[0].status_code == 200
        assert replies[0].json()["usage"]["completion_tokens"] == 1500
        assert process.wait(30) == code
        assert "Traceback" not in process.stderr.read()


@pytest.mark.parametrize(
    ("config", "chosen", "line"),
    [
        (ScheduleConfig(), None, "512 tokens (default); at most 64 requests run together"),
        (
            ScheduleConfig(max_step_tokens=40),
            None,
            "40 tokens (--max-step-tokens); at most 40 requests run together, not 64",
        ),
        (
            ScheduleConfig(max_step_tokens=16, max_running=8),
            "measured for --target-itl-ms",
            "16 tokens (measured for --target-itl-ms); at most 8 requests run together",
        ),
    ],
)
def test_the_step_budget_and_how_it_was_chosen_are_told(config, chosen, line):
    assert step_budget_line(config, chosen) == f"step budget: {line}"


def test_bad_options_exit_with_2(capsys):
    for words, says in (
        (["--port", "70000"], "cannot listen"),
        (["--max-running", "0"], "max_running"),
        (["--host", "no such host"], "cannot listen"),
    ):
        assert main(["serve", *words]) == 2
        assert says in capsys.readouterr().err


def test_a_model_that_cannot_be_loaded_ends_the_server_with_its_reason():
    done = subprocess.run(
        [*COMMAND, "--pages", "100000000"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["type"] == "CapacityError"
