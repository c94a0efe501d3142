"""Prints the verification of a new checkpoint."""

from rich.console import Console
from rich.table import Table

from paredown.evaluate.verify.verification import Verification
from paredown.jobs.compress import CompressedCheckpoint
from paredown.jobs.convert import ConvertedCheckpoint
from paredown.jobs.verify_config import NOT_WANTED

_NUM_WORST_LAYERS = 3
_AS_ASKED = "not verified, as asked; `paredown serve` will have nothing to check"


def print_verification(console: Console, made: CompressedCheckpoint) -> None:
    if made.verification is not None:
        _print_figures(console, made.verification)
    elif made.not_verified == NOT_WANTED:
        console.print(_AS_ASKED)
    else:
        console.print(f"not verified: {made.not_verified}", style="yellow")


def print_carried_verification(console: Console, made: ConvertedCheckpoint) -> None:
    if isinstance(made.verification, Verification):
        _print_figures(console, made.verification)
    elif made.verification is not None:
        console.print(f"verified: {made.verification.words}")
    elif made.not_verified == NOT_WANTED:
        console.print(_AS_ASKED)
    else:
        console.print(f"not verified: {made.not_verified}; no verification is written")


def _print_figures(console: Console, verification: Verification) -> None:
    ours, theirs = verification.compressed, verification.original
    if ours.cosine_mean is not None:
        _print_agreement(console, verification)
        return
    assert ours.perplexity is not None
    assert theirs.perplexity is not None
    loss = ours.perplexity / theirs.perplexity - 1
    table = Table("verified", "compressed", "original")
    table.add_row("perplexity", f"{ours.perplexity:.3f} ({loss:+.2%})", f"{theirs.perplexity:.3f}")
    table.add_row("bits per byte", f"{ours.bits_per_byte:.4f}", f"{theirs.bits_per_byte:.4f}")
    table.add_row("KL divergence, nats per token", f"{ours.kl_divergence:.5f}")
    table.add_row("top-1 agreement", f"{ours.top1_agreement:.2%}")
    _add_layers(table, verification)
    console.print(table)
    console.print(f"Protocol: {verification.protocol}.", style="dim")


def _print_agreement(console: Console, verification: Verification) -> None:
    """Prints how far an encoder's vectors or labels are from those of its original."""
    ours = verification.compressed
    table = Table("verified", "beside the original")
    table.add_row("cosine, mean", f"{ours.cosine_mean:.6f}")
    table.add_row("cosine, least", f"{ours.cosine_least:.6f}")
    if ours.rank_agreement is not None:
        table.add_row("rank agreement of pairs (Spearman)", f"{ours.rank_agreement:.6f}")
    if ours.label_agreement is not None:
        table.add_row("label agreement", f"{ours.label_agreement:.2%}")
    _add_layers(table, verification)
    console.print(table)
    console.print(f"Protocol: {verification.protocol}.", style="dim")


def _add_layers(table: Table, verification: Verification) -> None:
    worst = verification.worst_layers[:_NUM_WORST_LAYERS]
    if worst:
        told = ", ".join(f"{x.layer}: {x.own:.2%}" for x in worst)
        table.add_row("error of the worst layers", told)
        last = verification.layer_errors[-1]
        table.add_row("error after all layers", f"{last.accumulated:.2%}")
