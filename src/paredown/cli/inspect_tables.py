"""The tables of `paredown inspect`."""

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from paredown.cost.break_even import MAX_BATCH
from paredown.cost.inspection import PHASES, Inspection
from paredown.cost.memory import MEMORY_SHARE
from paredown.cost.operation import OperationCost
from paredown.cost.roofline import best_time
from paredown.units import GIGA, KILO, MEGA, TERA, format_bytes, format_rate


def print_inspection(found: Inspection, name: str, console: Console) -> None:
    workload = found.workload
    titles = {
        "prefill": f"prefill: {workload.prompt_tokens:,} tokens in one step",
        "decode": f"decode: {workload.batch} x 1 token at a context of {workload.context:,}",
    }
    active = ""
    if found.spec.experts is not None:
        active = f" ({_count(found.spec.num_active_parameters())} for a token)"
    console.print(
        f"[bold]{name}[/bold]: {found.spec.family}, "
        f"{_count(found.spec.num_parameters())} parameters{active}, {found.formats.name}"
    )
    for phase in PHASES:
        console.print(_operations(found, phase, titles[phase]))
    console.print(_memory(found))
    console.print(_predicted(found))
    console.print(_what_pays(found))
    roofs = found.target.roofs
    console.print(
        f"{roofs.name}: memory {format_rate(roofs.bandwidth_bytes_per_s, 'B/s')}"
        f"{_caches(found)}, int8 "
        f"{format_rate(roofs.int8_ops_per_s, 'op/s')}, bf16 "
        f"{format_rate(roofs.bf16_flops_per_s, 'FLOP/s')}, fp32 "
        f"{format_rate(roofs.fp32_flops_per_s, 'FLOP/s')} ({roofs.source}). Predicted times: "
        f"{found.target.basis(found.formats)}.",
        style="dim",
    )


def _caches(found: Inspection) -> str:
    """The bandwidth of a model of this size, where it is more than memory's."""
    bandwidth = found.roofs.bandwidth_bytes_per_s
    if found.target.calibration is None or bandwidth == found.target.roofs.bandwidth_bytes_per_s:
        return ""
    read = format_bytes(found.memory.weights)
    return f" ({format_rate(bandwidth, 'B/s')} for the {read} of this model's weights)"


def _operations(found: Inspection, phase: str, title: str) -> Table:
    roofs, costs = found.roofs, found.operations[phase]
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    headings = (
        "operation",
        "out x in",
        "FLOPs",
        "bytes",
        "FLOP/B",
        "bound",
        "at best",
        "predicted",
    )
    for heading in headings:
        table.add_column(heading, justify="left" if heading in ("operation", "bound") else "right")
    for cost, predicted in zip(costs, found.operation_s[phase], strict=True):
        best = best_time(cost, roofs)
        table.add_row(
            cost.operation.name,
            _shape(cost),
            _short(cost.flops),
            _short(cost.bytes, "B"),
            f"{cost.intensity:.3g}",
            best.bound,
            _seconds(best.seconds),
            "-" if predicted is None else _seconds(predicted),
        )
    table.add_section()
    flops, num_bytes = sum(one.flops for one in costs), sum(one.bytes for one in costs)
    table.add_row(
        "all",
        "",
        _short(flops),
        _short(num_bytes, "B"),
        f"{flops / num_bytes:.3g}",
        "",
        _seconds(found.best_s[phase]),
        "",
    )
    return table


def _shape(cost: OperationCost) -> str:
    operation = cost.operation
    times = f"{operation.count} x " if operation.count > 1 else ""
    if operation.kind == "attention":
        return f"{times}{operation.columns}/key"
    return f"{times}{operation.out}x{operation.columns}"


def _memory(found: Inspection) -> Table:
    memory, workload = found.memory, found.workload
    table = Table(title="memory and arithmetic", show_header=False)
    kv = f"keys and values, {workload.batch} x {workload.context:,} tokens"
    for label, num_bytes in (
        ("linear layers and output layer", memory.weights),
        ("embedding table beside it", memory.embedding),
        ("norms, biases, positions", memory.vectors),
        (kv, memory.kv),
        ("what a step works in", memory.activations),
        ("token ids in, logits out", memory.inputs + memory.outputs),
        ("all", memory.total),
    ):
        table.add_row(label, format_bytes(num_bytes))
    table.add_section()
    roofs = found.target.roofs
    table.add_row(
        f"sequences of {workload.context:,} tokens that {MEMORY_SHARE:.0%} of "
        f"{format_bytes(roofs.memory_bytes)} hold",
        f"{found.max_sequences:,}",
    )
    if found.missing_bytes:
        table.add_row("does not fit: missing for one of them", format_bytes(found.missing_bytes))
    new_tokens = max(1, workload.context - workload.prompt_tokens)
    answer = f"an answer of {new_tokens:,} tokens after {workload.prompt_tokens:,}"
    table.add_row(f"FLOPs of {answer}", _count(found.flops_with_cache))
    table.add_row("the same without kept keys and values", _count(found.flops_without_cache))
    return table


def _predicted(found: Inspection) -> Table:
    times, workload = found.times, found.workload
    table = Table(title="predicted and at best")
    for heading in ("", "time", "tokens/s", "at best", "share of the roof"):
        table.add_column(heading, justify="right" if heading else "left")
    rows = (
        (
            f"first token (TTFT), {workload.prompt_tokens:,} tokens",
            "prefill",
            times.ttft_s,
            times.prefill_tokens_per_s,
        ),
        (
            f"each token (TPOT), batch {workload.batch}",
            "decode",
            times.tpot_s,
            times.decode_tokens_per_s,
        ),
    )
    for label, phase, seconds, rate in rows:
        best_s = found.best_s[phase]
        table.add_row(
            label, _seconds(seconds), f"{rate:,.0f}", _seconds(best_s), f"{best_s / seconds:.0%}"
        )
    return table


def _what_pays(found: Inspection) -> Table:
    table = Table(title="what pays", show_header=False)
    for name, batch in found.break_even.items():
        limit = f"above {MAX_BATCH:,}" if batch is None else f"{batch:,}"
        table.add_row(f"batch at which int4-g32 gains less than 5 % over {name}", limit)
    guesses = ", ".join(f"{one.batch}: {one.num_draft_tokens}" for one in found.speculation)
    gains = ", ".join(f"{one.batch}: {one.gain:.2f}x" for one in found.speculation)
    table.add_row(
        f"guesses that pay, by batch, {found.acceptance:.0%} of them right, at no cost", guesses
    )
    table.add_row("what they gain", gains)
    return table


def _count(value: float) -> str:
    return format_rate(value, "").strip()


def _short(value: float, unit: str = "") -> str:
    """Three figures: a table has many columns."""
    for scale, prefix in ((TERA, "T"), (GIGA, "G"), (MEGA, "M"), (KILO, "k")):
        if value >= scale:
            figures = f"{value / scale:.3g}" if value < 1000 * scale else f"{value / scale:,.0f}"
            return f"{figures} {prefix}{unit}"
    return f"{value:.0f} {unit}".strip()


def _seconds(value: float) -> str:
    if value >= 1:
        return f"{value:.2f} s"
    for scale, unit in ((1e-3, "ms"), (1e-6, "us")):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"
