"""Writes the proof at the end of a recipe, and decides when a checkpoint is kept without one."""

from pathlib import Path

from paredown.errors import CapacityError, UnsupportedError
from paredown.evaluate.texts.encoder_texts import EncoderTexts
from paredown.evaluate.texts.text import EvalText
from paredown.evaluate.verify.encoder_verification import verify_encoder
from paredown.evaluate.verify.verification import Verification, verify
from paredown.executors.protocol import LoadedExecutor
from paredown.executors.run_options import RunOptions
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.progress import OnProgress


class Verifier:
    """Measures a new checkpoint beside its original and puts verification.json into its folder.

    It is called once, with the recipe's notes and the folder, before that appears under its name.
    The original and the result may not fit in memory together, or not run on the native core. Then
    `skipped` says so, and the checkpoint is kept without a verification. All other errors of
    `verify` are raised. `reference` is the loaded original, if the caller has it and it is no
    encoder; `notes` are included in the proof.
    """

    def __init__(
        self,
        original: Checkpoint,
        recipe: str,
        text: EvalText | EncoderTexts,
        *,
        reference: LoadedExecutor | None = None,
        num_threads: int | None = None,
        notes: tuple[str, ...] = (),
        on_progress: OnProgress | None = None,
    ) -> None:
        self._original = original
        self._recipe = recipe
        self._text = text
        self._reference = reference
        self._options = RunOptions(threads=ThreadPlan.resolve(num_threads))
        self._notes = notes
        self._on_progress = on_progress
        self.verification: Verification | None = None
        self.skipped: str | None = None

    def __call__(self, folder: Path, notes: tuple[str, ...]) -> None:
        try:
            self.verification = self._measure(Checkpoint.open(folder), (*self._notes, *notes))
        except (CapacityError, UnsupportedError) as error:
            self.skipped = f"{error.what} ({error.seen})"
            return
        self.verification.write(folder)

    def _measure(self, made: Checkpoint, notes: tuple[str, ...]) -> Verification:
        if isinstance(self._text, EncoderTexts):
            return verify_encoder(
                self._original,
                made,
                self._text,
                recipe=self._recipe,
                options=self._options,
                notes=notes,
                on_progress=self._on_progress,
            )
        return verify(
            self._original,
            made,
            self._text,
            recipe=self._recipe,
            reference=self._reference,
            options=self._options,
            notes=notes,
            on_progress=self._on_progress,
        )
