"""The tables of `paredown bench`, which fit into 80 columns."""

import statistics
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from paredown.cli.tables.columns import add_columns
from paredown.evaluate.load.benchmark import Cell, LoadResult
from paredown.evaluate.load.slo import SLO
from paredown.evaluate.load.summary import LATENCIES, LoadSummary, Percentiles
from paredown.evaluate.quality.measurement import Measurement
from paredown.evaluate.speed.speculation import SpeculationSpeed
from paredown.evaluate.speed.speed import PREFILL_TOKENS
from paredown.spec.machine import Machine
from paredown.units import format_count, format_rate

_LATENCY_NAMES = {
    "ttft_s": "time to first token",
    "tpot_s": "time per output token",
    "itl_s": "between two tokens",
    "e2e_s": "whole answer",
    "queue_s": "waiting to start",
}


def print_limits(console: Console, result: Measurement, machine: Machine, format_name: str) -> None:
    """Prints one sequence at a time, on the executor alone."""
    threads = format_count(machine.num_threads, "thread")
    table = Table(title=f"{result.name} ({format_name}), {threads}")
    add_columns(table, ("", "tokens/s", "spread", "of the machine's limit"))
    table.add_row(
        "decode, one sequence",
        f"{result.decode_tokens_per_s:,.0f}",
        f"{result.decode_spread:.1%}",
        f"MBU {result.mbu:.0%}",
    )
    table.add_row(
        f"prefill, {PREFILL_TOKENS} tokens",
        f"{result.prefill_tokens_per_s:,.0f}",
        f"{result.prefill_spread:.1%}",
        f"MFU {result.mfu:.0%}",
    )
    console.print(table)


def print_machine(console: Console, machine: Machine) -> None:
    console.print(
        f"{machine.name}, {machine.isa}: memory {format_rate(machine.bandwidth_bytes_per_s, 'B/s')}"
        f", int8 {format_rate(machine.int8_ops_per_s, 'op/s')}"
        f", bf16 {format_rate(machine.bf16_flops_per_s, 'FLOP/s')}"
        f", fp32 {format_rate(machine.fp32_flops_per_s, 'FLOP/s')}, measured in this run. "
        "MBU is to the bandwidth of a buffer as large as what a step reads.",
        style="dim",
    )


def print_speculation(console: Console, gains: Sequence[SpeculationSpeed]) -> None:
    table = Table(title="speculation, one sequence, tokens/s")
    add_columns(table, ("", "without", "with", "gain", "spread", "tokens/step", "accepted"))
    for one in gains:
        table.add_row(
            one.name,
            f"{statistics.median(one.without):,.0f}",
            f"{statistics.median(one.speculating):,.0f}",
            f"{one.gain:.2f}x",
            f"{one.spread:.1%}",
            f"{one.tokens_per_step:.2f}",
            f"{one.acceptance:.0%}",
        )
    console.print(table)
    num_different = sum(one.num_different for one in gains)
    assert not num_different, f"{num_different} answers differ with speculation"


def print_cells(
    console: Console, cells: Sequence[Cell], results: Sequence[LoadResult], slo: SLO | None
) -> None:
    """Prints a table of latencies and one of rates, with a row for each cell."""
    rounds = format_count(results[0].summary.num_runs, "round")
    latency = _table(f"latency, ms, all requests of {rounds}")
    percentiles = ("p50", "p95", "p99")
    add_columns(latency, [f"{name}\n{p}" for name in ("TTFT", "TPOT", "ITL") for p in percentiles])
    rate = _table(f"rates, medians of {rounds}")
    headings = (
        "input\ntokens/s",
        "output\ntokens/s",
        "spread",
        "MBU",
        "MFU",
        "in the\nmodel",
        *(("drafts\ntaken",) if _speculates(results) else ()),
        *(("goodput\nper s", "SLO\nmet") if slo is not None else ()),
    )
    add_columns(rate, headings)
    for cell, result in zip(cells, results, strict=True):
        one = result.summary
        sizes = (f"{cell.batch}", f"{cell.num_input_tokens}", f"{cell.num_output_tokens}")
        latency.add_row(*sizes, *_three(one.ttft_s), *_three(one.tpot_s), *_three(one.itl_s))
        rate.add_row(
            *sizes,
            f"{one.input_tokens_per_s:,.0f}",
            f"{one.output_tokens_per_s:,.0f}",
            f"{one.spread:.1%}",
            f"{one.mbu:.0%}",
            f"{one.mfu:.0%}",
            f"{one.model_share:.0%}",
            *((_accepted(one),) if _speculates(results) else ()),
            *((f"{one.goodput_per_s:,.2f}", f"{one.goodput_share:.0%}") if slo else ()),
        )
    console.print(latency)
    console.print(rate)
    if slo is not None:
        console.print(f"SLO: {slo}", style="dim")


def print_load(console: Console, result: LoadResult, slo: SLO | None, num_cut: int) -> None:
    """Prints one load over time: its latencies, then the rest."""
    one = result.summary
    table = Table(title=result.name, box=box.SIMPLE_HEAD)
    add_columns(table, ("ms", "mean", "p50", "p95", "p99", "max"), left=("ms",))
    for name in LATENCIES:
        found: Percentiles | None = getattr(one, name)
        values = () if found is None else (found.mean, found.p50, found.p95, found.p99, found.max)
        table.add_row(_LATENCY_NAMES[name], *map(milliseconds, values))
    console.print(table)
    facts = Table(box=None, show_header=False, padding=(0, 2))
    add_columns(facts, ("", "value"), left=("", "value"))
    for name, text in _facts(one, slo, num_cut):
        facts.add_row(name, text)
    console.print(facts)


def _facts(one: LoadSummary, slo: SLO | None, num_cut: int) -> list[tuple[str, str]]:
    failed = f", {one.num_failed} failed" if one.num_failed else ""
    cut = f", {num_cut:,} cut to what the model holds" if num_cut else ""
    facts = [
        ("requests", f"{one.num_requests:,}{failed}{cut}"),
        ("time", f"{one.duration_s:,.1f} s, {one.requests_per_s:,.2f} requests/s"),
        ("input", f"{one.input_tokens_per_s:,.0f} tokens/s"),
        ("output", f"{one.output_tokens_per_s:,.0f} tokens/s"),
        (
            "in the model",
            f"{one.model_share:.0%} of the time; there MBU {one.mbu:.0%}, MFU {one.mfu:.0%}",
        ),
        ("prefix cache", f"had {one.cached_share:.1%} of the input tokens"),
        (
            "at most",
            f"{one.most_running:,} running, {one.most_waiting:,} waiting, "
            f"{one.most_kv_share:.0%} of the KV pages held; "
            f"{format_count(one.num_preemptions, 'preemption')}",
        ),
    ]
    if one.num_proposed:
        facts.append(
            ("speculation", f"{_accepted(one)} of {one.num_proposed:,} draft tokens accepted")
        )
    if slo is not None:
        facts.append(
            (
                "goodput",
                f"{one.goodput_per_s:,.2f} requests/s, {one.goodput_share:.1%} within {slo}",
            )
        )
    return facts


def _table(title: str) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=0, show_edge=False, pad_edge=False)
    add_columns(table, ("batch", "input", "output"))
    return table


def _speculates(results: Sequence[LoadResult]) -> bool:
    return any(one.summary.num_proposed for one in results)


def _accepted(one: LoadSummary) -> str:
    return f"{one.num_accepted / one.num_proposed:.0%}" if one.num_proposed else "-"


def _three(found: Percentiles | None) -> tuple[str, ...]:
    return (
        ("-",) * 3
        if found is None
        else (milliseconds(found.p50), milliseconds(found.p95), milliseconds(found.p99))
    )


def milliseconds(seconds: float) -> str:
    """Formats at least three digits, and from 10 s on seconds with their unit. At most five
    characters, so that three times three of them fit in a row."""
    value = 1e3 * seconds
    if value >= 9999.5:
        return f"{seconds:.0f}s" if seconds >= 99.95 else f"{seconds:.1f}s"
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:,.{digits}f}"
