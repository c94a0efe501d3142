"""What is counted of answers, against the answers themselves."""

import re

from drivers.running_server import NUM_PAGES, SPEC, running_server
from fakes.toy_executor import ToyExecutor

LINE = re.compile(r"([a-z0-9:_]+?)(?:\{(.*)\})? (\S+)")
BODY = {"model": "toy", "prompt": "x" * 20, "ignore_eos": True, "temperature": 0}


def scrape(server):
    """Values by name and labels, without those that name the model."""
    found = {}
    for line in server.client.get("/metrics").text.splitlines():
        if not line.startswith("#"):
            name, labels, value = LINE.fullmatch(line).groups()
            own = [one for one in (labels or "").split(",") if not one.startswith("model_name")]
            own = [one for one in own if one and not one.startswith("engine")]
            found["".join([name, *own])] = float(value)
    return found


def test_tokens_and_times_of_answers():
    executor = ToyExecutor(num_pages=NUM_PAGES, spec=SPEC, delay_s=0.01)
    with running_server(executor=executor, shows_exact_metrics=True) as server:
        for body in ({"max_tokens": 10}, {"max_tokens": 5, "n": 3}, {"max_tokens": 1}):
            assert server.client.post("/v1/completions", json=BODY | body).status_code == 200
        found = scrape(server)
    assert found["vllm:prompt_tokens_total"] == found["paredown_prompt_tokens_total"] == 60
    assert found["vllm:generation_tokens_total"] == 26
    assert found['vllm:request_success_totalfinished_reason="length"'] == 5
    for name, count in (
        ("time_to_first_token_seconds", 5),
        ("request_queue_time_seconds", 5),
        ("e2e_request_latency_seconds", 5),
        ("inter_token_latency_seconds", 21),
        ("time_per_output_token_seconds", 21),
        ("request_time_per_output_token_seconds", 4),
        ("request_prompt_tokens", 3),
        ("request_generation_tokens", 5),
        ("request_inference_time_seconds", 5),
    ):
        assert found[f"vllm:{name}_count"] == found[f'vllm:{name}_bucketle="+Inf"'] == count, name
    # Each step sleeps for 10 ms.
    assert found["vllm:inter_token_latency_seconds_sum"] >= 0.01 * 9
    assert found["vllm:time_to_first_token_seconds_sum"] >= 0.01 * 3
    assert found["vllm:request_generation_tokens_sum"] == 26
    assert found["vllm:kv_cache_usage_perc"] == found["vllm:num_requests_running"] == 0


def test_answers_that_are_cut_off_are_counted_as_that():
    executor = ToyExecutor(num_pages=NUM_PAGES, spec=SPEC, delay_s=0.01)
    with running_server(executor=executor, shows_exact_metrics=True) as server:
        body = BODY | {"max_tokens": 200, "stream": True}
        with server.client.stream("POST", "/v1/completions", json=body) as reply:
            next(reply.iter_lines())
        name = 'vllm:request_success_totalfinished_reason="abort"'
        server.wait_until(lambda: scrape(server)[name] == 1)
        stats = server.state.answer_stats
        assert not stats._last_s


def test_names_of_the_prefix_cache_and_of_preemption():
    with running_server(shows_exact_metrics=True) as server:
        for _ in range(2):
            server.client.post("/v1/completions", json=BODY | {"max_tokens": 2})
        found, cache = scrape(server), server.engine.scheduler.cache.stats
    assert found["vllm:prefix_cache_queries_total"] == cache.num_queried_tokens > 0
    assert found["vllm:prefix_cache_hits_total"] == cache.num_hit_tokens > 0
    assert found["vllm:num_preemptions_total"] == 0
    assert found["vllm:num_requests_waiting"] == 0


# What the panels of the dashboard that comes with vLLM ask for.
DASHBOARD = (
    "e2e_request_latency_seconds_bucket",
    "prompt_tokens_total",
    "generation_tokens_total",
    "inter_token_latency_seconds_bucket",
    "num_requests_running",
    "num_requests_waiting",
    "time_to_first_token_seconds_bucket",
    "kv_cache_usage_perc",
    "request_prompt_tokens_bucket",
    "request_generation_tokens_bucket",
    "request_success_total",
    "request_queue_time_seconds_sum",
    "request_prefill_time_seconds_sum",
    "request_decode_time_seconds_sum",
    "request_max_num_generation_tokens_bucket",
)


def test_a_dashboard_for_vllm_finds_each_of_its_series_by_the_models_name():
    with running_server() as server:
        text = server.client.get("/metrics").text
    for name in DASHBOARD:
        lines = [line for line in text.splitlines() if line.startswith(f"vllm:{name}{{")]
        assert lines, name
        assert all('model_name="toy"' in line for line in lines)
