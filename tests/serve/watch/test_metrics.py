"""GET /metrics against what the engine counts, read line by line as Prometheus reads it."""

import re
import threading

from drivers.running_server import NUM_PAGES, SPEC, running_server
from fakes.toy_executor import ToyExecutor
from paredown.engine.engine import Engine
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.engine.speculate.ngram import NgramProposer
from paredown.engine.speculate.speculation_config import SpeculationConfig
from paredown.engine.speculate.speculator import Speculator

LINE = re.compile(r"([a-z0-9:_]+)(?:\{([^ ]+)\})? (\d+(?:\.\d+)?(?:e-\d+)?)")
PART = re.compile(r"_(bucket|sum|count)$")
BODY = {
    "model": "toy",
    "prompt": "say it again, " * 8,
    "max_tokens": 40,
    "ignore_eos": True,
    "seed": 4,  # repeats tokens, which can be drafted
}


def scrape(server):
    """Values of our own names by name, or by (name, position)."""
    reply = server.client.get("/metrics")
    assert reply.status_code == 200
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    kinds, found = {}, {}
    for line in reply.text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert name not in kinds
            kinds[name] = kind
        elif not line.startswith("# HELP "):
            name, labels, value = LINE.fullmatch(line).groups()
            kind = kinds.get(name) or kinds[PART.sub("", name)]
            assert (kind == "counter") == name.endswith("_total")
            position = re.fullmatch(r'position="(\d+)"', labels or "")
            if name.startswith("paredown_") and (position or not labels):
                found[(name, int(position[1])) if position else name] = float(value)
    return found


def test_counts_of_the_engine():
    with running_server(shows_exact_metrics=True) as server:
        before = scrape(server)
        assert before["paredown_ready"] == 1
        assert before["paredown_pages"] == NUM_PAGES
        assert before["paredown_prefix_cache_queries_total"] == 0
        for _ in range(2):
            assert server.client.post("/v1/completions", json=BODY).status_code == 200
        after, cache = scrape(server), server.engine.scheduler.cache.stats
        assert after["paredown_prefix_cache_queries_total"] == 2
        assert after["paredown_prefix_cache_hits_total"] == 1
        assert after["paredown_prefix_cache_hit_tokens_total"] == cache.num_hit_tokens > 0
        assert after["paredown_prefix_cache_query_tokens_total"] == cache.num_queried_tokens
        assert after["paredown_pages_used"] == after["paredown_requests_running"] == 0
        assert after["paredown_pages_idle"] == server.engine.scheduler.pool.num_idle > 0
        assert after["paredown_preemptions_total"] == 0
        assert not [name for name in after if "speculation" in name]


def test_who_runs_and_who_waits():
    executor = ToyExecutor(num_pages=NUM_PAGES, spec=SPEC, delay_s=0.01)
    body = {**BODY, "max_tokens": 120, "n": 3, "stream": True}
    config = ScheduleConfig(max_running=1)
    with (
        running_server(executor=executor, config=config, shows_exact_metrics=True) as server,
        server.client.stream("POST", "/v1/completions", json=body) as reply,
    ):
        lines = reply.iter_lines()
        next(lines)
        found = scrape(server)
        assert found["paredown_requests_running"] == 1
        assert found["paredown_requests_waiting"] == 2
        assert found["paredown_pages_used"] > 0


def test_draft_tokens_by_position():
    config = SpeculationConfig(kind="ngram", max_draft_tokens=3, is_adaptive=False, min_match=1)
    speculator = Speculator(NgramProposer(min_match=1), config)

    def load(engine):
        return Engine(engine.executor, engine.tokenizer, None, speculator)

    with running_server(load=load, shows_exact_metrics=True) as server:
        assert server.client.post("/v1/completions", json=BODY).status_code == 200
        found, stats = scrape(server), speculator.stats
        for name, counts in (("proposed", stats.num_proposed), ("accepted", stats.num_accepted)):
            name = f"paredown_speculation_{name}_total"
            assert [found[name, i + 1] for i in range(len(counts))] == counts
        assert sum(stats.num_proposed) > 0
        assert found["paredown_speculation_tokens_total"] == stats.num_tokens == 40
        assert found["paredown_speculation_failed"] == 0


def test_before_the_model_is_loaded():
    may_load = threading.Event()

    def load(engine):
        may_load.wait(20)
        return engine

    with running_server(load=load, wait=False) as server:
        assert scrape(server) == {"paredown_ready": 0}
        may_load.set()
        server.wait_until(lambda: scrape(server)["paredown_ready"] == 1)
