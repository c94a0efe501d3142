"""The tables of `paredown inspect`."""

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from paredown.cli.console import headed, lines
from paredown.cli.tables.columns import add_columns
from paredown.cost.break_even import MAX_BATCH
from paredown.cost.inspection import PHASES, Inspection
from paredown.cost.machine_profile import MachineProfile
from paredown.cost.memory import MEMORY_SHARE
from paredown.cost.model_formats import ModelFormats
from paredown.cost.operation import OperationCost
from paredown.cost.roofline import Roofs, best_time
from paredown.units import GIGA, KILO, MEGA, TERA, format_bytes, format_rate

# Short words for an operation's bound, to leave room for the other columns.
_BOUNDS = {"arithmetic": "math", "memory": "memory"}


def print_inspection(found: Inspection, name: str, console: Console) -> None:
    workload = found.batch_load
    titles = {
        "prefill": f"prefill: {workload.prompt_tokens:,} tokens in one step",
        "decode": f"decode: {workload.batch} x 1 token at a context of {workload.context:,}",
    }
    active = ""
    if found.spec.has_experts:
        active = f" ({count_text(found.spec.num_active_parameters())} for a token)"
    what = (
        f": {found.spec.family}, {count_text(found.spec.num_parameters())} parameters{active}, "
        f"{found.formats.name}"
    )
    console.print(headed(name, what))
    for phase in PHASES:
        console.print(
            operations_table(
                titles[phase],
                found.operations[phase],
                found.operation_s[phase],
                found.roofs,
                found.best_s[phase],
            )
        )
    console.print(_memory(found))
    console.print(_predicted(found))
    console.print(_what_pays(found))
    console.print(_speculation(found))
    console.print(machine_line(found.machine, found.formats, _caches(found)), style="dim")


def machine_line(machine: MachineProfile, formats: ModelFormats, caches: str = "") -> str:
    """Returns the machine's roofs in a line, and what predicted times rest on."""
    roofs = machine.roofs
    return (
        f"{roofs.name}: memory {format_rate(roofs.bandwidth_bytes_per_s, 'B/s')}"
        f"{caches}, int8 "
        f"{format_rate(roofs.int8_ops_per_s, 'op/s')}, bf16 "
        f"{format_rate(roofs.bf16_flops_per_s, 'FLOP/s')}, fp32 "
        f"{format_rate(roofs.fp32_flops_per_s, 'FLOP/s')} ({roofs.source}). Predicted times: "
        f"{machine.basis(formats)}."
    )


def _caches(found: Inspection) -> str:
    """Returns the bandwidth for a model of this size, where it exceeds memory's."""
    bandwidth = found.roofs.bandwidth_bytes_per_s
    if found.machine.fit is None or bandwidth == found.machine.roofs.bandwidth_bytes_per_s:
        return ""
    read = format_bytes(found.memory.weights)
    return f" ({format_rate(bandwidth, 'B/s')} for the {read} of this model's weights)"


def operations_table(
    title: str,
    costs: list[OperationCost],
    seconds: list[float | None],
    roofs: Roofs,
    best_s: float,
) -> Table:
    """Returns the operations of a step with their costs and times."""
    table = Table(title=title, box=SIMPLE_HEAD, padding=0, show_edge=False, pad_edge=False)
    headings = (
        "operation",
        "count",
        "out x in",
        "FLOPs",
        "bytes",
        "FLOP/B",
        "bound",
        "at best",
        "predicted",
    )
    add_columns(table, headings, left=("operation", "bound"))
    for cost, predicted in zip(costs, seconds, strict=True):
        best = best_time(cost, roofs)
        table.add_row(
            lines(cost.operation.name.replace(", ", ",\n", 1)),
            str(cost.operation.count),
            _shape(cost),
            _short(cost.flops),
            _short(cost.bytes, "B"),
            _figures(cost.intensity),
            _BOUNDS[best.bound],
            seconds_text(best.seconds),
            "-" if predicted is None else seconds_text(predicted),
        )
    table.add_section()
    flops, num_bytes = sum(one.flops for one in costs), sum(one.bytes for one in costs)
    table.add_row(
        "all",
        "",
        "",
        _short(flops),
        _short(num_bytes, "B"),
        _figures(flops / num_bytes),
        "",
        seconds_text(best_s),
        "",
    )
    return table


def _shape(cost: OperationCost) -> str:
    operation = cost.operation
    if operation.kind == "attention":
        return f"{operation.columns}/key"
    return f"{operation.out}x{operation.columns}"


def _memory(found: Inspection) -> Table:
    memory, workload = found.memory, found.batch_load
    table = Table(title="memory and arithmetic", show_header=False)
    add_columns(table, ("", "bytes"), left=("", "bytes"))
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
    roofs = found.machine.roofs
    table.add_row(
        f"sequences of {workload.context:,} tokens that {MEMORY_SHARE:.0%} of "
        f"{format_bytes(roofs.memory_bytes)} hold",
        f"{found.max_sequences:,}",
    )
    if found.missing_bytes:
        table.add_row("does not fit: missing for one of them", format_bytes(found.missing_bytes))
    new_tokens = max(1, workload.context - workload.prompt_tokens)
    answer = f"an answer of {new_tokens:,} tokens after {workload.prompt_tokens:,}"
    table.add_row(f"FLOPs of {answer}", count_text(found.flops_with_cache))
    table.add_row("the same without kept keys and values", count_text(found.flops_without_cache))
    return table


def _predicted(found: Inspection) -> Table:
    times, workload = found.times, found.batch_load
    table = Table(title="predicted and at best")
    add_columns(table, ("", "time", "tokens/s", "at best", "share of the roof"))
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
            label,
            seconds_text(seconds),
            f"{rate:,.0f}",
            seconds_text(best_s),
            f"{best_s / seconds:.0%}",
        )
    return table


def _what_pays(found: Inspection) -> Table:
    table = Table(title="what pays", show_header=False)
    add_columns(table, ("", "batch"))
    for name, batch in found.break_even.items():
        limit = f"above {MAX_BATCH:,}" if batch is None else f"{batch:,}"
        table.add_row(f"batch at which int4-g32 gains less than 5 % over {name}", limit)
    return table


def _speculation(found: Inspection) -> Table:
    table = Table(
        title=f"draft tokens that pay, {found.acceptance:.0%} of them right, at no cost, by batch"
    )
    add_columns(table, ("", *(f"{one.batch:,}" for one in found.speculation)))
    table.add_row("draft tokens", *(str(one.num_draft_tokens) for one in found.speculation))
    table.add_row("gain", *(f"{one.gain:.2f}x" for one in found.speculation))
    return table


def count_text(value: float) -> str:
    """Formats a count with the prefix of a unit."""
    return format_rate(value, "").strip()


def _short(value: float, unit: str = "") -> str:
    """Formats three significant digits, because a table has many columns."""
    for scale, prefix in ((TERA, "T"), (GIGA, "G"), (MEGA, "M"), (KILO, "k")):
        if value >= 0.9995 * scale:
            return f"{_figures(value / scale)} {prefix}{unit}"
    return f"{value:.0f} {unit}".strip()


def seconds_text(value: float) -> str:
    """Formats a time with three significant digits."""
    for scale, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "us")):
        if value >= 0.9995 * scale:
            return f"{_figures(value / scale)} {unit}"
    return f"{_figures(value / 1e-9)} ns"


def _figures(value: float) -> str:
    return f"{value:.3g}" if value < 999.5 else f"{value:,.0f}"
