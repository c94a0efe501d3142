"""The table of a search's candidates."""

from rich import box
from rich.table import Table

from paredown.evaluate.quality.measurement import Measurement
from paredown.optimize.choose import quality_loss
from paredown.optimize.optimize_result import OptimizeResult
from paredown.units import MEGA

# In narrower terminals the table omits columns that the report and --json also have.
_WIDE_COLUMNS = 104
_PREDICTS = ["format", "MB", "ppl", "loss", "KL", "top-1", "decode/s", "MBU"]
_PREDICTS_WIDE = ["bits", "prefill/s", "MFU"]
_ENCODES = ["format", "MB", "cosine", "least", "ranks", "labels", "texts/s"]
_ENCODES_WIDE = ["bits", "MFU"]


def candidates_table(result: OptimizeResult, width: int) -> Table:
    """Returns the table for a console of so many columns."""
    is_encoder, is_wide = result.reference.cosine_mean is not None, width >= _WIDE_COLUMNS
    headings, more = (_ENCODES, _ENCODES_WIDE) if is_encoder else (_PREDICTS, _PREDICTS_WIDE)
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
    for heading in [*headings, *(more if is_wide else []), "front"]:
        table.add_column(heading, justify="left" if heading == "format" else "right", no_wrap=True)
    for one in [result.reference, *result.candidates]:
        chosen = one.name == result.chosen
        style = "bold green" if chosen else "dim" if one.on_front is False else ""
        cells = _encoder_cells(one, result) if is_encoder else _cells(one, result)
        kept = cells if is_wide else cells[: len(headings)]
        mark = "chosen" if chosen else "yes" if one.on_front else ""
        table.add_row(*kept, mark, style=style)
    return table


def _cells(one: Measurement, result: OptimizeResult) -> list[str]:
    assert one.perplexity is not None
    assert result.reference.perplexity is not None
    loss = quality_loss(one.perplexity, result.reference.perplexity)
    return [
        one.name,
        f"{one.file_bytes / MEGA:.2f}",
        f"{one.perplexity:.3f}",
        "" if one is result.reference else f"{loss:+.2%}",
        "" if one.kl_divergence is None else f"{one.kl_divergence:.5f}",
        "" if one.top1_agreement is None else f"{one.top1_agreement:.1%}",
        f"{one.decode_tokens_per_s:,.0f}",
        f"{one.mbu:.0%}",
        f"{one.bits_per_weight:.2f}",
        f"{one.prefill_tokens_per_s:,.0f}",
        f"{one.mfu:.0%}",
    ]


def _encoder_cells(one: Measurement, result: OptimizeResult) -> list[str]:
    is_reference = one is result.reference
    return [
        one.name,
        f"{one.file_bytes / MEGA:.2f}",
        "" if is_reference else f"{one.cosine_mean:.5f}",
        "" if is_reference else f"{one.cosine_least:.4f}",
        "" if one.rank_agreement is None else f"{one.rank_agreement:.5f}",
        "" if one.label_agreement is None else f"{one.label_agreement:.1%}",
        f"{one.texts_per_s:,.0f}",
        f"{one.bits_per_weight:.2f}",
        f"{one.mfu:.0%}",
    ]
