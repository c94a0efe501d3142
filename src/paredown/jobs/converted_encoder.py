"""The proof of a converted encoder: its vectors beside those of the checkpoint that it was made of.

They are measured as those of a compressed encoder are, whatever the target: cosines and ranks tell
what other numbers cost, and that the same numbers cost nothing.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from paredown.errors import CapacityError, UnsupportedError
from paredown.evaluate.texts.encoder_texts import EncoderTexts
from paredown.evaluate.verify.encoder_verification import verify_encoder
from paredown.evaluate.verify.verification import Verification
from paredown.evaluate.verify.verification_file import read_verification, write_verification
from paredown.executors.encoder_protocol import EncoderExecutor
from paredown.executors.load import load_encoder
from paredown.executors.run_options import RunOptions
from paredown.jobs.verify_config import VerifyConfig
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.files.whole_file import is_there

_TOKENIZER = "tokenizer.json"


class ConvertedEncoder:
    """Checks the source against its proof, where it has one, before any work. Then it is called
    with each output, and writes the proof there, with the figures of the source's inside.

    `verification` is the result, `skipped` why there is none: the two do not fit in memory
    together, do not run here, or have no tokenizer. Raises CheckpointError for a source that
    differs from its proof, and for vectors that are not numbers."""

    def __init__(self, source: Checkpoint, target: str, *, num_threads: int | None) -> None:
        self.verification: Verification | None = None
        self.skipped: str | None = None
        self._source, self._target = source, target
        self._options = RunOptions(threads=ThreadPlan.resolve(num_threads))
        self._reference: EncoderExecutor | None = None
        self._figures: Mapping[str, object] | None = None
        if source.path.is_dir() and not is_there(source.path / _TOKENIZER):
            self.skipped = f"{source.path} has no {_TOKENIZER} to read texts with"
            return
        texts = VerifyConfig().texts_for(source, num_threads)
        assert isinstance(texts, EncoderTexts)
        self._texts = texts
        with self._skipping():
            self._check_source()

    def __call__(self, path: Path) -> None:
        if self.skipped is not None:
            return
        with self._skipping():
            written = Checkpoint.open(path)
            self.verification = verify_encoder(
                self._source,
                written,
                self._texts,
                recipe=self._target,
                reference=self._reference,
                options=self._options,
            )
            figures = self.verification.figures()
            if self._figures is not None:
                figures["source"] = dict(self._figures)
            write_verification(path, figures, self.verification.fingerprint)

    def _check_source(self) -> None:
        found = read_verification(self._source.path)
        if found is not None:
            self._figures, fingerprint = found
            self._options = replace(self._options, activations=fingerprint.activations)
        self._reference = load_encoder(self._source, self._options)
        if found is not None:
            fingerprint.check_files(self._source, self._reference)
            fingerprint.check_vectors(self._source, self._reference)

    @contextmanager
    def _skipping(self) -> Iterator[None]:
        try:
            yield
        except (CapacityError, UnsupportedError) as error:
            self.skipped = f"{error.what} ({error.seen})"
