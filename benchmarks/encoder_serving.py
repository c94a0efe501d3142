"""Measures an encoder's server against the same encoder offline, in turn.

    python -m benchmarks.encoder_serving MODEL [--rounds 5] [--seconds 4] [--json OUT.json]

batches   NUM_CLIENTS clients that each send BATCH texts of 128 tokens a request and want base64:
          the server's texts per second over those of `Encoder.embed`, tokenizing included
          (asked: 0.85)
single    NUM_CLIENTS clients that send single texts of 16 tokens: requests per second
          (asked: 1,000)

All texts differ. Server and clients are processes of their own; all share the machine, as they do
with a user. Each round measures both ways, one after the other.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.figures import Spread
from paredown import BatchConfig, Encoder
from paredown.engine.encode.encoder_model import EncoderModel
from paredown.kernels.probe import default_num_threads

NUM_CLIENTS = 32
BATCH = 16
LONG_TOKENS, SHORT_TOKENS = 128, 16
ASKED_SHARE, ASKED_REQUESTS = 0.85, 1000.0
NUM_BODIES = 64
# Texts of a call of `embed`: several batches.
OFFLINE_TEXTS = 64


@dataclass(frozen=True, kw_only=True)
class Result:
    """Medians over the rounds, with least and greatest."""

    offline_texts_per_s: Spread
    served_texts_per_s: Spread
    share: Spread
    single_requests_per_s: Spread


def make_texts(model: EncoderModel, num_tokens: int, count: int, rng: random.Random) -> list[str]:
    """Returns texts of that many tokens, special ones too, of words that are a token each."""
    names = sorted(name for name in model.vocabulary if name.isascii() and name.isalpha())
    words = [
        name
        for name in rng.sample(names, min(len(names), 2000))
        if _num_own_tokens(model, name) == 1
    ]
    num_words = num_tokens - model.num_special_tokens
    return [" ".join(rng.choices(words, k=num_words)) for _ in range(count)]


def _num_own_tokens(model: EncoderModel, text: str) -> int:
    return len(model.tokenizer.encode(f"{text} {text}")) - 1


@contextmanager
def serving(model: str, num_threads: int) -> Iterator[str]:
    """Runs `paredown serve`; yields its address."""
    command = [sys.executable, "-m", "paredown.cli.main", "serve", model, "--port", "0", "--json"]
    command += ["--threads", str(num_threads)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield str(json.loads(process.stdout.readline())["url"])
        finally:
            process.terminate()


def answers_per_s(url: str, bodies: list[dict[str, Any]], seconds: float) -> float:
    """Returns the rate at which NUM_CLIENTS clients get their answers."""
    place = urlsplit(url)
    command = [sys.executable, "-m", "benchmarks.encoder_client", str(place.hostname)]
    command += [str(place.port), str(NUM_CLIENTS), str(seconds)]
    done = subprocess.run(
        command, input=json.dumps([*map(json.dumps, bodies)]), capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    told = json.loads(done.stdout)
    return float(told["num_answers"] / told["seconds"])


def offline_texts_per_s(encoder: Encoder, texts: list[str], seconds: float) -> float:
    """Returns the rate of `embed`."""
    at_once, number, start_s = OFFLINE_TEXTS, 0, time.monotonic()
    while time.monotonic() < start_s + seconds:
        begin = number % len(texts)
        encoder.embed(texts[begin : begin + at_once])
        number += at_once
    return number / (time.monotonic() - start_s)


def measure(model: str, num_rounds: int, seconds: float, num_threads: int) -> Result:
    """Measures in rounds; one round more warms up."""
    encoder = Encoder(model, num_threads=num_threads, config=BatchConfig())
    rng = random.Random(1)
    long = make_texts(encoder.model, LONG_TOKENS, NUM_BODIES * BATCH, rng)
    short = make_texts(encoder.model, SHORT_TOKENS, 64 * NUM_BODIES, rng)
    batches = [
        {"input": long[begin : begin + BATCH], "encoding_format": "base64"}
        for begin in range(0, len(long), BATCH)
    ]
    singles = [{"input": text, "encoding_format": "base64"} for text in short]
    offline, served, single = [], [], []
    with serving(model, num_threads) as url:
        for _ in range(num_rounds + 1):
            offline.append(offline_texts_per_s(encoder, long, seconds))
            served.append(BATCH * answers_per_s(url, batches, seconds))
            single.append(answers_per_s(url, singles, seconds))
    offline, served, single = offline[1:], served[1:], single[1:]
    return Result(
        offline_texts_per_s=Spread.of(offline),
        served_texts_per_s=Spread.of(served),
        share=Spread.of([one / other for one, other in zip(served, offline, strict=True)]),
        single_requests_per_s=Spread.of(single),
    )


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each turn (default: 4)")
    parser.add_argument("--threads", type=int, default=default_num_threads())
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(words)
    print(f"load before {os.getloadavg()[0]:.1f}, threads {args.threads}", flush=True)
    result = measure(args.model, args.rounds, args.seconds, args.threads)
    for name, spread, unit in (
        ("offline", result.offline_texts_per_s, f"texts/s of {LONG_TOKENS} tokens"),
        ("served", result.served_texts_per_s, f"texts/s, {BATCH} a request"),
        ("share", result.share, f"of offline (asked: {ASKED_SHARE})"),
        ("single", result.single_requests_per_s, f"requests/s (asked: {ASKED_REQUESTS:,.0f})"),
    ):
        print(f"{name:8} {spread.median:,.3f} ({spread.min:,.3f} to {spread.max:,.3f}) {unit}")
    if args.json is not None:
        args.json.write_text(json.dumps(asdict(result), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
