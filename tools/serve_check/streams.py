"""Many streams at once: each is answered to its end, or refused because the queue is full."""

import asyncio
import time
from collections import Counter

from tools.serve_check.exchange import Exchange, Reply, exchange, request
from tools.serve_check.finding import Finding
from tools.serve_check.mixed_requests import CHAT
from tools.serve_check.served import serve

NUM_STREAMS = 200
NUM_TOKENS = 64


def check_streams(num_streams: int = NUM_STREAMS) -> Finding:
    """Opens the streams together and reads all of them to their end."""
    with serve("--exact-metrics") as served:
        start_s = time.monotonic()
        replies = asyncio.run(_read_all(served.port, num_streams))
        took_s = time.monotonic() - start_s
        held = served.wait_until_idle()
    statuses = Counter(reply.status for reply in replies)
    faults = [
        f"status {reply.status}: {reply.body[-200:]!r}"
        for reply in replies
        if not (reply.status == 429 or (reply.status == 200 and reply.is_finished_stream))
    ]
    if not statuses[200]:
        faults.append("no stream was answered")
    return Finding(
        check="streams",
        figures={
            "streams": num_streams,
            "answered": statuses[200],
            "refused with 429": statuses[429],
            "seconds": round(took_s, 1),
        },
        faults=(*faults[:10], *(f"still held: {one}" for one in held)),
    )


async def _read_all(port: int, num_streams: int) -> list[Reply]:
    body = {
        "messages": [{"role": "user", "content": "Tell me a story."}],
        "max_tokens": NUM_TOKENS,
        "ignore_eos": True,
        "stream": True,
    }
    asked = Exchange(data=request("POST", CHAT, body))
    return await asyncio.gather(*(exchange(port, asked) for _ in range(num_streams)))
