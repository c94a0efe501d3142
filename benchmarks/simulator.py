"""Measures the speed of the simulator.

    python -m benchmarks.simulator [--requests 1000000] [--machines 4] [--rates 20 60]
                                   [--input-tokens ~256] [--output-tokens ~128] [--profile] [--json]

Poisson requests on `--machines` machines behind a router, on one core: a model of 8 B parameters in
bf16 on the H100 of the table, 256 requests together. For each rate per machine (of low and of high
load) the seconds of processor and of wall clock, requests and steps per second, and how many steps
were taken at once (asked: 1,000,000 requests in less than 2 minutes). `--profile` prints where
the time goes.
"""

import argparse
import cProfile
import json
import pstats
import resource
import time

from paredown.cost.machine_profile import MachineProfile
from paredown.cost.machines import find_machine
from paredown.cost.model_formats import ModelFormats
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.plan.lengths import parse_lengths
from paredown.plan.planned_machine import PlannedMachine
from paredown.plan.simulate import Fleet, simulate
from paredown.plan.workload import DrawnLengths, RandomWorkload
from paredown.spec.attention import Attention
from paredown.spec.layer import LayerSpec
from paredown.spec.mlp import Mlp
from paredown.spec.model import Embedding, ModelSpec, Output
from paredown.spec.norm import Norm, Norms
from paredown.spec.rotary import Rotary

NORM = Norm(kind="rms", eps=1e-5)
LAYER = LayerSpec(
    attention=Attention(num_heads=32, num_kv_heads=8, head_dim=128, rotary=Rotary(theta=500000.0)),
    mlp=Mlp(size=14336, is_gated=True, activation="silu"),
    norms=Norms(attention=NORM, mlp=NORM),
)
MODEL = ModelSpec(
    family="llama",
    vocab_size=128256,
    hidden_size=4096,
    max_positions=8192,
    embedding=Embedding(),
    layers=(LAYER,) * 32,
    final_norm=NORM,
    output=Output(),
)
MAX_RUNNING, MAX_STEP_TOKENS = 256, 2048


def run(rate: float, args: argparse.Namespace) -> dict[str, float]:
    formats = ModelFormats(activation_bytes=2)
    machine = PlannedMachine(profile=MachineProfile(key="h100", roofs=find_machine("h100")))
    fleet = Fleet(
        num_pages=machine.num_pages(
            MODEL, formats, max_running=MAX_RUNNING, max_step_tokens=MAX_STEP_TOKENS
        ),
        max_positions=MODEL.max_positions,
        num_replicas=args.machines,
        schedule=ScheduleConfig(
            max_running=MAX_RUNNING, max_step_tokens=MAX_STEP_TOKENS, max_waiting=1_000_000
        ),
    )
    workload = RandomWorkload(
        requests_per_s=rate * args.machines,
        num_requests=args.requests,
        lengths=DrawnLengths(
            prompt=parse_lengths(args.input_tokens, limit=4000),
            output=parse_lengths(args.output_tokens, limit=4000),
        ),
    )
    wall_s, processor_s = time.perf_counter(), time.process_time()
    found = simulate(workload, fleet, machine.cost(MODEL, formats))
    wall_s, processor_s = time.perf_counter() - wall_s, time.process_time() - processor_s
    return {
        "requests_per_s_per_machine": rate,
        "requests": len(found.e2es_s),
        "wall_s": wall_s,
        "processor_s": processor_s,
        "simulated_s": found.duration_s,
        "us_per_request": 1e6 * processor_s / args.requests,
        "steps": found.num_steps,
        "steps_per_s": found.num_steps / processor_s,
        "tokens_per_step": found.num_step_tokens / found.num_steps,
        "utilization": found.utilization,
        "e2e_p95_s": found.e2e.quantile(0.95),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--machines", type=int, default=4)
    parser.add_argument("--rates", type=float, nargs="+", default=[20.0, 60.0])
    parser.add_argument("--input-tokens", default="~256")
    parser.add_argument("--output-tokens", default="~128")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.profile:
        profile = cProfile.Profile()
        profile.runcall(run, args.rates[0], args)
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)
        return
    rows = [run(rate, args) for rate in args.rates]
    if args.json:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        print(", ".join(f"{name} {value:,.4g}" for name, value in row.items()))


if __name__ == "__main__":
    main()
