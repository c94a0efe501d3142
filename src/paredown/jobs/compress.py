"""Compresses a checkpoint by a recipe and measures it beside its original, in one folder."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path

from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.compress_result import CompressResult
from paredown.compress.recipe import Recipe
from paredown.compress.recipe_file import read_recipe
from paredown.compress.recipe_names import find_recipe
from paredown.evaluate.texts.calibration_text import CalibrationConfig
from paredown.evaluate.verify.verification import Verification
from paredown.jobs.float_source import FloatSource, FromQuantized, float_source
from paredown.jobs.recipe_texts import recipe_texts
from paredown.jobs.run_recipe import check_work_folders, run_recipe
from paredown.jobs.staged_recipe import check_stages
from paredown.jobs.verifier import Verifier
from paredown.jobs.verify_config import NOT_WANTED, VerifyConfig
from paredown.kernels.probe import resolve_num_threads
from paredown.models.checkpoint import Checkpoint
from paredown.models.files.output_folder import check_output_folder
from paredown.progress import OnProgress

_CALIBRATION = CalibrationConfig()
_VERIFY = VerifyConfig()


@dataclass(frozen=True, kw_only=True)
class CompressedCheckpoint:
    """A folder that `compress_checkpoint` wrote.

    `source_bytes`  size of the files that were compressed
    `written`       its place and size, and what was not done as asked
    `verification`  its loss, as in verification.json; None where it was not measured
    `not_verified`  why it was not measured: "--no-verify" where that was asked for, else what did
                    not fit or is not supported; None where it was
    """

    source_bytes: int
    written: CompressResult
    verification: Verification | None
    not_verified: str | None

    def as_json(self) -> dict[str, object]:
        """Returns everything as `paredown compress --json` prints it."""
        verification = None if self.verification is None else self.verification.figures()
        sparsity = self.written.sparsity
        return asdict(self.written) | {
            "path": str(self.written.path),
            "sparsity": None if sparsity is None else sparsity.as_json(),
            "verification": verification,
            "not_verified": self.not_verified,
        }


def compress_and_verify(
    model: Checkpoint | FromQuantized | Path | str | None,
    output: Path | str,
    recipe: Recipe | Path | str,
    *,
    calibration: Calibration | CalibrationConfig = _CALIBRATION,
    verify: VerifyConfig | None = _VERIFY,
    num_threads: int | None = None,
    overwrite: bool = False,
    on_progress: OnProgress | None = None,
) -> CompressedCheckpoint:
    """Compresses a checkpoint into a standard folder that contains the proof of its loss.

    The result is measured beside the original through the engine that serves. verification.json is
    in the folder when the folder appears, in one rename. A failure before that leaves nothing
    behind, except that a calibrated run that was stopped resumes when it is started again. If the
    two models do not fit in memory together, or the native core does not take them, the folder is
    kept without a proof and `not_verified` says why (docs/guide/verification.md).

    `model`        folder or .gguf file; None is the packaged model; a quantized model must be
                   inside FromQuantized(model=...), and the proof says so
    `output`       folder to write; must not exist unless `overwrite` is set
    `recipe`       a recipe, the name of one ("int4-g128"), or a YAML file (docs/guide/recipes.md)
    `calibration`  the text for calibrated recipes, or where to take it from
    `verify`       the text to measure on; None measures nothing and writes no verification.json
    `num_threads`  threads of the measurement; None is all cores
    `on_progress`  called with the current activity and the share of it that is done

    Raises ConfigError for an unknown recipe or a bad option, and UnsupportedError for a recipe
    that this model cannot have. Raises CheckpointError for a model or text that cannot be read, or
    predictions that are not numbers. Raises CapacityError for a calibration that does not fit in
    memory or on disk, and OutputError if `output` exists or cannot be written.
    """
    recipe, output = as_recipe(recipe), Path(output)
    check_output_folder(output, overwrite)
    resolve_num_threads(num_threads)
    with float_source(model, on_progress) as source:
        # The model may have to sample the text, which takes long; check for errors first.
        staged = check_stages(source.floats, recipe)
        check_work_folders(output)
        texts = recipe_texts(source, [recipe], calibration, num_threads)
        verifier = None
        if verify is not None:
            verifier = _verifier(source, staged.recipe.name, verify, num_threads, on_progress)
        written = run_recipe(
            staged,
            output,
            texts=texts,
            overwrite=overwrite,
            on_progress=on_progress,
            finish=verifier,
        )
        return _result(source.original, source.notes, written, verifier)


def _verifier(
    source: FloatSource,
    recipe: str,
    verify: VerifyConfig,
    num_threads: int | None,
    on_progress: OnProgress | None,
) -> Verifier:
    return Verifier(
        source.original,
        recipe,
        verify.texts_for(source.original, num_threads),
        num_threads=num_threads,
        notes=source.notes,
        on_progress=on_progress,
    )


def _result(
    source: Checkpoint,
    notes: tuple[str, ...],
    written: CompressResult,
    verifier: Verifier | None,
) -> CompressedCheckpoint:
    """Builds the result. The source's `notes` come before those of the written checkpoint."""
    return CompressedCheckpoint(
        source_bytes=source.file_bytes,
        written=replace(written, notes=(*notes, *written.notes)),
        verification=None if verifier is None else verifier.verification,
        not_verified=NOT_WANTED if verifier is None else verifier.skipped,
    )


def as_recipe(recipe: Recipe | Path | str) -> Recipe:
    """Returns the recipe itself, the one in a YAML file, or the one of that name."""
    if isinstance(recipe, Recipe):
        return recipe
    path = Path(recipe)
    is_file = path.suffix in (".yaml", ".yml")
    return read_recipe(path) if is_file else find_recipe(str(recipe))
