"""The table of a sensitivity: by KL divergence, or by the score of a task."""

from rich import box
from rich.table import Table

from paredown.evaluate.quality.quality import Quality
from paredown.evaluate.quality.task_quality import TaskQuality
from paredown.optimize.sensitivity import (
    AnyQuality,
    Sensitivity,
    SensitivityTable,
    recovered,
)

_TEXT_LEGEND = (
    "KL divergence to the model as it is, nats per token. all but it: everything else is "
    "quantized or pruned. won back: the share of everything's loss that leaving it out saves. "
    "ppl and top-1: of the part alone."
)
_TASK_LEGEND = (
    "score: {metric} with the part alone quantized; {score:.2%} as it is. all but it: everything "
    "else is quantized. won back: the points that leaving it out saves. cosine: to the outputs as "
    "they are, in the mean of both; least: of the part alone."
)


def sensitivity_table(what: str, found: SensitivityTable) -> Table:
    """Returns the table; `what` is what was quantized or pruned."""
    table = Table(
        title=f"{what} in {found.what}", title_justify="left", box=box.SIMPLE_HEAD, padding=0
    )
    for heading in _headings(found.everything):
        table.add_column(heading, justify="left" if heading == "part" else "right", no_wrap=True)
    before = None
    for row in found.rows:
        if before is not None and row.kind != before:
            table.add_section()
        before = row.kind
        weights = f"{row.num_weights:,}" if row.num_weights else ""
        table.add_row(row.name, weights, *_cells(row, found))
    table.add_section()
    table.add_row("everything", "", *_whole(found.everything), style="bold")
    return table


def legend(plain: AnyQuality) -> str:
    """Returns what the columns mean; `plain` is the model as it is."""
    if isinstance(plain, Quality):
        return _TEXT_LEGEND
    return _TASK_LEGEND.format(metric=plain.metric, score=plain.score)


def _headings(quality: AnyQuality) -> list[str]:
    if isinstance(quality, TaskQuality):
        return ["part", "weights", "score", "all but it", "won back", "cosine", "all but", "least"]
    return ["part", "weights", "KL alone", "all but it", "won back", "ppl", "top-1"]


def _cells(row: Sensitivity, table: SensitivityTable) -> list[str]:
    alone, all_but, gain = row.alone, row.all_but, recovered(row, table)
    if isinstance(alone, TaskQuality):
        assert isinstance(all_but, TaskQuality)
        return [
            f"{alone.score:.2%}",
            f"{all_but.score:.2%}",
            f"{100 * gain:+.2f}",
            f"{alone.cosine_mean:.5f}",
            f"{all_but.cosine_mean:.5f}",
            f"{alone.cosine_least:.4f}",
        ]
    assert alone.top1_agreement is not None
    share = gain / table.everything.loss if table.everything.loss else 0.0
    return [
        f"{alone.loss:.6f}",
        f"{all_but.loss:.6f}",
        f"{share:.1%}",
        f"{alone.perplexity:.3f}",
        f"{alone.top1_agreement:.1%}",
    ]


def _whole(quality: AnyQuality) -> list[str]:
    if isinstance(quality, TaskQuality):
        least = f"{quality.cosine_least:.4f}"
        return [f"{quality.score:.2%}", "", "", f"{quality.cosine_mean:.5f}", "", least]
    assert quality.top1_agreement is not None
    return [
        f"{quality.loss:.6f}",
        "",
        "",
        f"{quality.perplexity:.3f}",
        f"{quality.top1_agreement:.1%}",
    ]
