"""The mixed load: no request is lost or stuck, memory stays flat, and bits stay what they were.

Clients send one request after the other. From time to time a flood of requests comes at once, more
than the server has places for."""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from tools.serve_check.exchange import exchange
from tools.serve_check.finding import Finding
from tools.serve_check.mixed_requests import CHAT, COMPLETIONS, MixedRequest, mixed_requests
from tools.serve_check.served import Served, serve

NUM_REQUESTS = 10_000
NUM_CLIENTS = 24
# The built-in model's template shows no tools.
TOOL_FORMAT = "hermes"
# So few that they are all in use soon: then requests wait for pages, and memory has all of them.
NUM_PAGES = "256"
# A flood takes this many requests at once, one in so many requests begins one.
FLOOD = 400
FLOOD_EVERY = 2_000
# Memory is compared with that after so many requests, or half of fewer: until then a flood has
# come, and caches and pools are full.
NUM_WARM = 2_000
MAX_GROWTH = 0.05
MAX_FAULTS = 10
# What must have the same bits before and after.
REFERENCES: tuple[tuple[str, dict[str, object]], ...] = (
    (COMPLETIONS, {"prompt": "It was late", "max_tokens": 24, "temperature": 0, "logprobs": 5}),
    (COMPLETIONS, {"prompt": ["a", "b"], "n": 2, "max_tokens": 16, "seed": 7, "logprobs": 3}),
    (
        CHAT,
        {
            "messages": [{"role": "user", "content": "Tell me a story."}],
            "max_tokens": 24,
            "seed": 3,
            "logprobs": True,
            "top_logprobs": 4,
        },
    ),
)


def check_mixed_load(num_requests: int = NUM_REQUESTS, seed: int = 1) -> Finding:
    """Runs the load against a server of the built-in model. A seed gives the same requests."""
    logs = list[str]()
    with serve(
        "--exact-metrics", "--pages", NUM_PAGES, "--tool-format", TOOL_FORMAT, on_log=logs.append
    ) as served:
        before = _answers(served)
        start_s = time.monotonic()
        load = Load(served, num_requests, seed)
        asyncio.run(load.run())
        took_s = time.monotonic() - start_s
        held = served.wait_until_idle()
        end_bytes = served.memory_bytes
        after = _answers(served)
    faults = [*load.faults[:MAX_FAULTS], *(f"still held: {one}" for one in held)]
    if len(load.faults) > MAX_FAULTS:
        faults.append(f"{len(load.faults)} faults in all")
    growth = end_bytes / load.warm_bytes - 1
    if growth > MAX_GROWTH:
        faults.append(f"memory grew by {growth:.1%}, from {load.warm_bytes} to {end_bytes} bytes")
    if before != after:
        faults.append("answers after the load have other bits than before it")
    if "Traceback" in logs[0]:
        faults.append(f"the log has a trace: {_trace(logs[0])}")
    statuses = ", ".join(f"{count} x {status}" for status, count in sorted(load.statuses.items()))
    return Finding(
        check="mixed load",
        figures={
            "requests": sum(load.statuses.values()),
            "seconds": round(took_s),
            "memory growth": f"{growth:+.1%}",
            "answers": statuses,
        },
        faults=tuple(faults),
    )


class Load:
    """The clients' side; `faults` is what went wrong."""

    def __init__(self, served: Served, num_requests: int, seed: int) -> None:
        self.faults: list[str] = []
        self.statuses: Counter[str] = Counter()
        self.warm_bytes = 0
        self._served = served
        self._numbered = enumerate(mixed_requests(seed, num_requests))
        self._num_warm = min(NUM_WARM, num_requests // 2)
        self._num_done = 0

    async def run(self) -> None:
        await asyncio.gather(*(self._client() for _ in range(NUM_CLIENTS)))
        self.warm_bytes = self.warm_bytes or self._served.memory_bytes

    async def _client(self) -> None:
        for number, asked in self._numbered:
            if number % FLOOD_EVERY == FLOOD_EVERY // 2:
                await asyncio.gather(*(self._send(one) for one in self._flood(asked)))
            else:
                await self._send(asked)

    def _flood(self, first: MixedRequest) -> Iterator[MixedRequest]:
        yield first
        for _, asked in itertools.islice(self._numbered, FLOOD - 1):
            yield asked

    async def _send(self, asked: MixedRequest) -> None:
        try:
            reply = await exchange(self._served.port, asked.asked)
        except TimeoutError:
            self.faults.append(f"{asked.kind}: stuck")
            self.statuses["stuck"] += 1
        except OSError as error:
            self.faults.append(f"{asked.kind}: no connection: {error}")
            self.statuses["no connection"] += 1
        else:
            names = {None: "hung up", 0: "closed"}
            self.statuses[names.get(reply.status, str(reply.status))] += 1
            fault = asked.fault(reply)
            if fault is not None:
                self.faults.append(f"{asked.kind}: {fault}")
        self._num_done += 1
        if self._num_done == self._num_warm:
            self.warm_bytes = self._served.memory_bytes


def _answers(served: Served) -> list[Any]:
    return [served.post(path, body)["choices"] for path, body in REFERENCES]


def _trace(log: str) -> str:
    return log[log.index("Traceback") :][:2000]
