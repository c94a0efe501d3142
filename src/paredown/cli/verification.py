"""What a verb that writes checkpoints measures at its end, and how it is told."""

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from paredown.errors import CapacityError, UnsupportedError
from paredown.evaluate.texts.text import EvalText, choose_text, sampling_pages
from paredown.evaluate.verify.carried_verification import (
    CarriedVerification,
    VerifiedSource,
    carry_verification,
    check_verified,
)
from paredown.evaluate.verify.verification import Verification, verify
from paredown.evaluate.verify.verification_file import verification_path
from paredown.executors.load import load_executor
from paredown.executors.protocol import LoadedExecutor
from paredown.executors.run_options import RunOptions
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.text.tokenizer import Tokenizer

DEFAULT_TOKENS = 4096
_NUM_WORST_LAYERS = 3


def add_verification_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("verification (docs/verification.md)")
    group.add_argument("--text", type=Path, help="UTF-8 text to predict")
    group.add_argument(
        "--tokens", type=int, default=DEFAULT_TOKENS, help=f"of the text (default {DEFAULT_TOKENS})"
    )
    group.add_argument("--threads", type=int, default=None, help="threads (default: all cores)")
    group.add_argument(
        "--no-verify", action="store_true", help="measure nothing, write no verification.json"
    )


class Verifier:
    """Verifies the folder that it is called with; the text is chosen before any work starts.

    Where the original and the result do not fit in memory together, or the native core does not
    take them, `skipped` says so, and the checkpoint is kept without a verification.
    """

    def __init__(
        self,
        source: Checkpoint,
        recipe: str,
        args: argparse.Namespace,
        on_progress: Callable[[str, float], None],
    ) -> None:
        self._source = source
        self._recipe = recipe
        self._num_threads: int | None = args.threads
        self._on_progress = on_progress
        self._text = _choose_text(source, args)
        self.verification: Verification | None = None
        self.skipped: str | None = None

    def __call__(self, folder: Path, notes: tuple[str, ...]) -> None:
        try:
            self.verification = verify(
                self._source,
                Checkpoint.open(folder),
                self._text,
                recipe=self._recipe,
                num_threads=self._num_threads,
                notes=notes,
                on_progress=self._on_progress,
            )
        except (CapacityError, UnsupportedError) as error:
            self.skipped = f"{error.what} ({error.seen})"
            return
        self.verification.write(folder)


class Carrier:
    """Gives what it is called with the proof of the source that is converted, which is checked
    before any work starts. `carried` is the result; `skipped` says why there is none. Raises
    CheckpointError for a source that is not what was verified."""

    def __init__(self, source: Checkpoint, *, keeps_codes: bool) -> None:
        self.carried: CarriedVerification | None = None
        self.skipped: str | None = None
        self._verified: VerifiedSource | None = None
        if not verification_path(source.path).exists():
            self.skipped = f"{source.path} has no {verification_path(source.path).name}"
        elif not keeps_codes:
            self.skipped = "the target holds other numbers than those that were verified"
        else:
            with self._skipping():
                self._verified = check_verified(source)

    def __call__(self, path: Path) -> None:
        if self._verified is not None:
            with self._skipping():
                self.carried = carry_verification(self._verified, Checkpoint.open(path))

    @contextmanager
    def _skipping(self) -> Iterator[None]:
        try:
            yield
        except (CapacityError, UnsupportedError) as error:
            self.skipped = f"{error.what} ({error.seen})"


def print_verification(console: Console, verifier: Verifier | None) -> None:
    """None: it was not wanted."""
    if verifier is None:
        console.print("not verified, as asked; `paredown serve` will have nothing to check")
    elif verifier.verification is None:
        console.print(f"not verified: {verifier.skipped}", style="yellow")
    else:
        _print_figures(console, verifier.verification)


def verification_json(verifier: Verifier | None) -> dict[str, object]:
    verification = None if verifier is None else verifier.verification
    return {
        "verification": None if verification is None else verification.figures(),
        "not_verified": "--no-verify" if verifier is None else verifier.skipped,
    }


def _choose_text(source: Checkpoint, args: argparse.Namespace) -> EvalText:
    def sampler() -> LoadedExecutor:
        pages = sampling_pages(source.spec)
        return load_executor(
            source, RunOptions(num_pages=pages, threads=ThreadPlan.resolve(args.threads))
        )

    tokenizer = Tokenizer.open(source.path)
    return choose_text(args.text, tokenizer, args.tokens, sampler, source.spec.max_positions)


def _print_figures(console: Console, verification: Verification) -> None:
    ours, theirs = verification.compressed, verification.original
    assert ours.perplexity is not None
    assert theirs.perplexity is not None
    loss = ours.perplexity / theirs.perplexity - 1
    worst = verification.worst_layers[:_NUM_WORST_LAYERS]
    table = Table("verified", "compressed", "original")
    table.add_row("perplexity", f"{ours.perplexity:.3f} ({loss:+.2%})", f"{theirs.perplexity:.3f}")
    table.add_row("bits per byte", f"{ours.bits_per_byte:.4f}", f"{theirs.bits_per_byte:.4f}")
    table.add_row("KL divergence, nats per token", f"{ours.kl_divergence:.5f}")
    table.add_row("top-1 agreement", f"{ours.top1_agreement:.2%}")
    table.add_row("error of the worst layers", ", ".join(f"{x.layer}: {x.own:.2%}" for x in worst))
    last = verification.layer_errors[-1]
    table.add_row("error after all layers", f"{last.accumulated:.2%}")
    console.print(table)
    console.print(f"Protocol: {verification.protocol}.", style="dim")
