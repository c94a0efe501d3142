"""Turns runs into rows, and rows into text, Markdown and JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.cases import Bar
from benchmarks.figures import Spread, mbu, mfu, rates, rival, verdict
from benchmarks.peers import OURS
from benchmarks.rounds import Run
from paredown.units import format_rate


@dataclass(frozen=True, kw_only=True)
class Row:
    """`rates` are tokens per second, or for a start seconds; `utilization` is MFU for prefill and
    MBU for decode, of the best reading of the limit, `of_mean` of the mean of its readings.
    `passed`, which takes the best, is None where nothing is asked."""

    name: str
    unit: str
    rates: dict[str, Spread]
    best_peer: str | None
    ratio: Spread | None
    utilization_name: str
    utilization: Spread | None
    of_mean: Spread | None
    bar: Bar
    passed: bool | None
    failures: dict[str, str]
    settings: dict[str, dict[str, str]]


def make_row(run: Run) -> Row:
    case = run.case
    is_start = case.task == "start"
    found = {
        name: rates(case.tokens_per_run, seconds)
        for name, seconds in run.seconds.items()
        if seconds
    }
    ours = found.get(OURS, [])
    peers = {name: one for name, one in found.items() if name != OURS}
    rivalry = rival(ours, peers) if ours else None
    utilization = _utilization(run, ours, [limit.best for limit in run.limits])
    shown = run.seconds if is_start else found
    return Row(
        name=case.name,
        unit="s" if is_start else "tokens/s",
        rates={name: Spread.of(values) for name, values in shown.items() if values},
        best_peer=rivalry.best_peer if rivalry else None,
        ratio=rivalry.ratio if rivalry else None,
        utilization_name={"prefill": "MFU", "decode": "MBU", "start": ""}[case.task],
        utilization=utilization,
        of_mean=_utilization(run, ours, [limit.mean for limit in run.limits]),
        bar=case.bar,
        passed=verdict(
            case.bar,
            ratio=rivalry.ratio.median if rivalry else None,
            utilization=utilization.median if utilization else None,
            seconds=Spread.of(run.seconds[OURS]).median if is_start and ours else None,
        ),
        failures=run.failures,
        settings={name: settings for name, settings in run.settings.items() if settings},
    )


def as_json(
    rows: Sequence[Row], runs: Sequence[Run], machine: Mapping[str, Any], peers: Mapping[str, Any]
) -> dict[str, Any]:
    """Everything: the rows, what they were made from, the machine and the peers' own words."""
    return {
        "machine": dict(machine),
        "peers": dict(peers),
        "rows": [asdict(row) for row in rows],
        "runs": [asdict(run) for run in runs],
    }


def table(document: Mapping[str, Any]) -> list[list[str]]:
    """Returns headings and cells of a JSON document."""
    names = [OURS]
    for row in document["rows"]:
        names += [name for name in row["rates"] if name not in names and " " not in name]
    found = [["case", *names, "ratio to the best", "MBU or MFU", "asked", ""]]
    for row in document["rows"]:
        cells = [_rate(row["rates"].get(name), row["unit"]) for name in names]
        found.append(
            [row["name"], *cells, _ratio(row), _share(row), _bar(row), _passed(row["passed"])]
        )
    return found


def text(document: Mapping[str, Any]) -> str:
    cells = table(document)
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    lines = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    ]
    return "\n".join([*lines, "", *notes(document)])


def markdown(document: Mapping[str, Any]) -> str:
    heading, *lines = table(document)
    rule = ["---", *["---:"] * (len(heading) - 1)]
    rows = ["| " + " | ".join(line) + " |" for line in (heading, rule, *lines)]
    return "\n".join([*rows, "", *(f"- {note}" for note in notes(document))]) + "\n"


def notes(document: Mapping[str, Any]) -> list[str]:
    """Returns the machine, the peers, and those that could not be measured."""
    machine = document["machine"]
    found = [
        f"{machine['date']}, {machine['name']}, {machine['num_threads']} threads of "
        f"{machine['num_cores']} cores; {machine['num_rounds']} rounds, of cases that take over "
        f"{machine['case_s']:.0f} s fewer. "
        f"Load average before: {machine['load_average']:.1f}. "
        f"Measured first: memory {format_rate(machine['bandwidth_bytes_per_s'], 'B/s')}, "
        f"int8 {format_rate(machine['int8_ops_per_s'], 'op/s')}, "
        f"bf16 {format_rate(machine['bf16_flops_per_s'], 'FLOP/s')}, "
        f"fp32 {format_rate(machine['fp32_flops_per_s'], 'FLOP/s')}."
    ]
    for name, peer in document["peers"].items():
        if "reason" in peer:
            found.append(f"{name}: not measured, {peer['reason']}")
        else:
            found.append(f"{name} {peer['version']}: {peer['instruction_sets']}")
    for row in document["rows"]:
        for name, reason in row["failures"].items():
            if "reason" not in document["peers"].get(name, {}):
                found.append(f"{row['name']}: {name} has no figure: {reason}")
    return found


def _utilization(run: Run, ours: Sequence[float], limits: Sequence[float]) -> Spread | None:
    case = run.case
    if not ours or not limits:
        return None
    if case.task == "prefill":
        return Spread.of(mfu(ours, run.num_linear_parameters, limits))
    steps_per_s = [rate / case.num_sequences for rate in ours]
    return Spread.of(mbu(steps_per_s, run.step_bytes, limits))


def _rate(spread: Mapping[str, float] | None, unit: str) -> str:
    if spread is None:
        return "-"
    median = spread["median"]
    if unit == "s":
        return f"{median:.2f} s"
    return f"{median:,.1f}" if median < 100 else f"{median:,.0f}"


def _ratio(row: Mapping[str, Any]) -> str:
    if row["ratio"] is None:
        return "-"
    ratio = row["ratio"]
    return f"{ratio['median']:.2f} ({ratio['min']:.2f}..{ratio['max']:.2f}) {row['best_peer']}"


def _share(row: Mapping[str, Any]) -> str:
    if row["utilization"] is None:
        return "-"
    share, of_mean = row["utilization"], row["of_mean"]
    name = row["utilization_name"]
    best = f"{name} {share['median']:.2f} ({share['min']:.2f}..{share['max']:.2f})"
    return f"{best}, of the mean {of_mean['median']:.2f}"


def _bar(row: Mapping[str, Any]) -> str:
    bar, parts = row["bar"], []
    if bar["min_ratio"] is not None:
        parts.append(f"{bar['min_ratio']:.2f}x")
    if bar["min_utilization"] is not None:
        parts.append(f"{row['utilization_name']} {bar['min_utilization']:.2f}")
    if bar["max_seconds"] is not None:
        parts.append(f"{bar['max_seconds']:.1f} s")
    return ", ".join(parts) or "-"


def _passed(passed: bool | None) -> str:
    return {True: "pass", False: "fail", None: "-"}[passed]
