"""The end of a search: the best candidate is chosen, written with its proof, and told."""

import shutil
from pathlib import Path

from paredown.compress.recipe import Recipe
from paredown.errors import UnsupportedError
from paredown.jobs.run_recipe import run_recipe
from paredown.jobs.staged_recipe import check_stages
from paredown.jobs.verifier import Verifier
from paredown.models.files.output_folder import output_folder
from paredown.optimize.candidates import Candidates, SearchSetup
from paredown.optimize.choose import choose
from paredown.optimize.encoder_candidates import EncoderSetup
from paredown.optimize.front import mark_front
from paredown.optimize.optimize_config import OptimizeConfig
from paredown.optimize.optimize_result import OptimizeResult
from paredown.optimize.output_share import output_note
from paredown.optimize.pruned_candidates import pruned_words
from paredown.optimize.search import SearchNotes
from paredown.progress import OnProgress


def finish(
    setup: SearchSetup | EncoderSetup,
    measured: Candidates,
    notes: SearchNotes,
    config: OptimizeConfig,
    on_progress: OnProgress,
) -> OptimizeResult:
    """Chooses a candidate and writes it, unless the search was stopped. Raises UnsupportedError
    where there is none."""
    _require_candidates(measured)
    assert measured.reference is not None
    choice = choose(measured.measurements, measured.reference, setup.bounds)
    chosen, verifier = choice.chosen, None
    if chosen is not None and config.output is not None and notes.stopped is None:
        on_progress(f"writing {chosen.name}", 1.0)
        recipe = measured.recipes[chosen.name]
        verifier = _write(setup, config.output, recipe, measured.notes.get(recipe.name, ()))
    written = verifier is not None
    return OptimizeResult(
        model=setup.original.path.name,
        candidates=mark_front(measured.measurements),
        reference=measured.reference,
        skipped=measured.skipped,
        not_tried=notes.not_tried,
        mixes=notes.mixes,
        pruned=pruned_words(measured.measurements, measured.recipes),
        stopped=notes.stopped,
        exit_code=notes.exit_code,
        clamped=measured.clamped,
        notes=measured.notes,
        machine=setup.machine,
        protocol=setup.protocol,
        calibration=None if setup.calibration is None else setup.calibration.source,
        text_choice=notes.text_choice,
        note=_note(setup, config),
        bounds=setup.bounds,
        chosen=None if chosen is None else chosen.name,
        nearest=None if choice.nearest is None else choice.nearest.name,
        missed=choice.missed,
        verification=None if verifier is None else verifier.verification,
        not_verified=None if verifier is None else verifier.skipped,
        output=config.output if written else None,
        report=config.report,
    )


def _write(
    setup: SearchSetup | EncoderSetup, output: Path, recipe: Recipe, made_notes: tuple[str, ...]
) -> Verifier:
    """Writes the checkpoint with its verification.json, for which it is measured once more.
    `made_notes` are those of the candidate, if it was kept."""
    verifier = Verifier(
        setup.original,
        recipe.name,
        setup.text,
        reference=setup.executor if isinstance(setup, SearchSetup) else None,
        num_threads=setup.num_threads,
        notes=setup.notes,
    )
    made = setup.folder / recipe.name
    if made.is_dir():
        with output_folder(output) as partial:
            shutil.copytree(made, partial, dirs_exist_ok=True)
            verifier(partial, made_notes)
    else:
        staged = check_stages(setup.source, recipe)
        run_recipe(staged, output, texts=setup.texts, finish=verifier)
    return verifier


def _note(setup: SearchSetup | EncoderSetup, config: OptimizeConfig) -> str | None:
    if config.formats is not None or isinstance(setup, EncoderSetup):
        return None
    return output_note(setup.source.spec)


def _require_candidates(measured: Candidates) -> None:
    if measured.measurements:
        return
    raise UnsupportedError(
        "this model can have none of the formats",
        seen="; ".join(f"{one.name}: {one.reason}" for one in measured.skipped),
        remedy="Give others (--formats), or the original checkpoint if this one is compressed.",
    )
