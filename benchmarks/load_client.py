"""A client in a process of its own, which sends requests at given times and notes when tokens come.

    python -m benchmarks.load_client URL < requests.json > times.json

requests.json   a list of {"at_s", "prompt" (token ids), "max_tokens"}
times.json      for each its "sent_s", "first_s", "last_s": seconds of this machine's monotonic
                clock, which another process reads too; "first_s" is null where it failed
"""

import asyncio
import json
import sys
import time
from typing import Any

import httpx

_START_S = 0.5


async def send(client: httpx.AsyncClient, start_s: float, asked: dict[str, Any]) -> dict[str, Any]:
    await asyncio.sleep(max(start_s + asked["at_s"] - time.monotonic(), 0))
    body = {
        "prompt": asked["prompt"],
        "max_tokens": asked["max_tokens"],
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
    }
    sent_s, first_s, last_s = time.monotonic(), None, None
    async with client.stream("POST", "/v1/completions", json=body) as response:
        if response.status_code == 200:
            async for _ in response.aiter_bytes():
                last_s = time.monotonic()
                first_s = last_s if first_s is None else first_s
    return {"sent_s": sent_s, "first_s": first_s, "last_s": last_s}


async def run(url: str, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=600, limits=limits) as client:
        start_s = time.monotonic() + _START_S
        return await asyncio.gather(*(send(client, start_s, one) for one in requests))


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run(sys.argv[1], json.load(sys.stdin)))))
