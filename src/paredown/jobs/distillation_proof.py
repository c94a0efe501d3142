"""The proof at the end of a distillation: the student as it started and as it became, beside its
teacher."""

from pathlib import Path

from paredown.distill.distill import Pair
from paredown.distill.trainer import TrainResult
from paredown.errors import CapacityError, UnsupportedError
from paredown.evaluate.quality.measurement import Measurement, make_measurement
from paredown.evaluate.quality.quality import measure_quality, num_pages_for
from paredown.evaluate.texts.encoder_texts import EncoderTexts
from paredown.evaluate.texts.text import EvalText
from paredown.evaluate.verify.encoder_verification import measure_agreement
from paredown.evaluate.verify.verification import Verification
from paredown.executors.load import load_encoder, load_executor
from paredown.executors.protocol import LoadedExecutor
from paredown.executors.run_options import RunOptions
from paredown.jobs.verifier import Verifier
from paredown.jobs.verify_config import NOT_WANTED, VerifyConfig
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.progress import OnProgress


class DistillationProof:
    """`name` says how the student was made. The text is read, or sampled from the teacher, at once.
    `write` is called with the student's folder before that appears. `config` None measures nothing.
    `notes` say how the training went, too, once `write` was called."""

    def __init__(
        self,
        pair: Pair,
        name: str,
        config: VerifyConfig | None,
        *,
        num_threads: int | None = None,
        notes: tuple[str, ...] = (),
        on_progress: OnProgress | None = None,
    ) -> None:
        self._pair = pair
        self._name = name
        self._num_threads = num_threads
        self._on_progress = on_progress
        self.notes = notes
        self.before: Measurement | None = None
        self.verification: Verification | None = None
        self.not_verified = NOT_WANTED if config is None else _incomparable(pair)
        self._text: EvalText | EncoderTexts | None = None
        if config is not None and self.not_verified is None:
            context = pair.student.spec.max_positions
            self._text = config.texts_for(pair.teacher, num_threads, context)

    def write(self, folder: Path, training: TrainResult) -> None:
        """Measures the student and writes verification.json to the folder, unless what is needed
        for it does not fit in memory or is not supported."""
        self.notes = (*self.notes, *_training_notes(training))
        if self._text is None:
            return
        reference = None
        try:
            if isinstance(self._text, EncoderTexts):
                self.before = self._compared(self._text)
            else:
                reference = self._load(self._pair.teacher, self._text)
                self.before = self._measured(self._text, reference)
        except (CapacityError, UnsupportedError) as error:
            self.not_verified = f"{error.what} ({error.seen})"
            return
        self.notes = (*self.notes, f"before the training: {_told(self.before)}")
        verifier = Verifier(
            self._pair.teacher,
            self._name,
            self._text,
            reference=reference,
            num_threads=self._num_threads,
            notes=self.notes,
            on_progress=self._on_progress,
        )
        verifier(folder, ())
        self.verification, self.not_verified = verifier.verification, verifier.skipped

    def _measured(self, text: EvalText, reference: LoadedExecutor) -> Measurement:
        """Returns the figures of the student as it started."""
        report = self._on_progress or (lambda what, share: None)
        start = self._load(self._pair.student, text)
        (quality,), _ = measure_quality(
            [start],
            text,
            reference,
            lambda done, total: report("predicting the text as the student started", done / total),
        )
        return make_measurement(
            "student before training",
            self._pair.student,
            quality=quality,
            original=self._pair.teacher,
            held_bytes=start.weight_bytes,
        )

    def _compared(self, texts: EncoderTexts) -> Measurement:
        """Returns the figures of an encoder as it started."""
        options = RunOptions(threads=ThreadPlan.resolve(self._num_threads))
        report = self._on_progress or (lambda what, share: None)
        start = load_encoder(self._pair.student, options)
        agreement = measure_agreement(
            start,
            load_encoder(self._pair.teacher, options),
            texts,
            names=("the student as it started", "its teacher"),
            on_progress=lambda done, total: report(
                "reading texts as the student started", done / total
            ),
        )
        return make_measurement(
            "student before training",
            self._pair.student,
            agreement=agreement,
            original=self._pair.teacher,
            held_bytes=start.weight_bytes,
        )

    def _load(self, checkpoint: Checkpoint, text: EvalText) -> LoadedExecutor:
        threads = ThreadPlan.resolve(self._num_threads)
        return load_executor(checkpoint, RunOptions(num_pages=num_pages_for(text), threads=threads))


def _incomparable(pair: Pair) -> str | None:
    """Says why the two cannot predict the same tokens; None where they can."""
    sizes = pair.student.spec.vocab_size, pair.teacher.spec.vocab_size
    if sizes[0] == sizes[1]:
        return None
    return f"the student has {sizes[0]:,} tokens and its teacher {sizes[1]:,}"


def _told(start: Measurement) -> str:
    if start.perplexity is not None:
        return f"perplexity {start.perplexity:.3f}, KL divergence {start.kl_divergence:.5f}"
    if start.label_agreement is not None:
        return f"{start.label_agreement:.2%} of the teacher's labels"
    return f"cosine to the teacher's vectors {start.cosine_mean:.4f}"


def _training_notes(training: TrainResult) -> tuple[str, ...]:
    first, last = training.records[0], training.records[-1]
    told = (
        f"trained on {training.num_tokens:,} tokens in {last.elapsed_s:.0f} s: loss from "
        f"{first.loss:.4f} to {training.final_loss:.4f}",
        *training.notes,
    )
    best = training.best
    if best is None:
        return told
    start = training.judgements[0].loss
    end = ", where training ended early" if training.stopped_early else ""
    return (
        *told,
        f"on held-out text from {start:.4f} to {best.loss:.4f}, the best of "
        f"{len(training.judgements)} looks, after {best.num_tokens:,} tokens{end}",
    )
