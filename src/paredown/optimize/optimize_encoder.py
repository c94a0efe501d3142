"""`paredown optimize` for an encoder: recipes, compared by their vectors and texts per second."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from paredown.compress.recipe import Recipe
from paredown.compress.recipe_names import find_recipe
from paredown.errors import UnsupportedError
from paredown.evaluate.texts.encoder_texts import EncoderTexts
from paredown.jobs.float_source import FloatSource
from paredown.jobs.recipe_texts import recipe_texts
from paredown.jobs.verify_config import VerifyConfig
from paredown.models.checkpoint import Checkpoint
from paredown.optimize.bounds import within_default
from paredown.optimize.candidates import Candidates, Skipped
from paredown.optimize.deadline import Deadline
from paredown.optimize.encoder_candidates import (
    EncoderSetup,
    load_candidate,
    measure_encoder_candidates,
)
from paredown.optimize.encoder_search import search_encoder
from paredown.optimize.finish import finish
from paredown.optimize.mixed_recipes import is_mixed
from paredown.optimize.optimize_config import OptimizeConfig
from paredown.optimize.optimize_result import OptimizeResult
from paredown.optimize.search import SearchNotes
from paredown.progress import OnProgress
from paredown.spec.machine import Machine
from paredown.stopped import StoppedError

_MIXED = "widths for each layer are found by predictions of tokens, and an encoder makes none"


def optimize_encoder(
    source: FloatSource,
    config: OptimizeConfig,
    machine: Machine,
    deadline: Deadline,
    on_progress: OnProgress,
) -> OptimizeResult:
    """Runs the search and writes the best candidate. Raises what `optimize` raises, and
    UnsupportedError for an encoder that gives one number for a text."""
    _require_vectors(source.original)
    names = config.formats or ()
    skipped = [Skipped(name=name, reason=_MIXED) for name in names if is_mixed(name)]
    recipes = [find_recipe(name) for name in names if not is_mixed(name)]
    wanted = None if config.formats is None else recipes
    measured_on = VerifyConfig(text=config.text, num_tokens=config.num_tokens)
    text = measured_on.texts_for(source.original, config.num_threads)
    assert isinstance(text, EncoderTexts)
    with tempfile.TemporaryDirectory(prefix="paredown-") as kept:
        setup = EncoderSetup(
            source=source.floats,
            original=source.original,
            notes=source.notes,
            executor=load_candidate(source.original, config.num_threads),
            text=text,
            machine=machine,
            folder=Path(kept),
            texts=recipe_texts(source, wanted, config.calibration, config.num_threads),
            num_rounds=config.num_rounds,
            num_threads=config.num_threads,
            bounds=within_default(config.bounds, generates=False),
        )
        return _search(setup, recipes, skipped, config, deadline, on_progress)


def _search(
    setup: EncoderSetup,
    recipes: Sequence[Recipe],
    skipped: list[Skipped],
    config: OptimizeConfig,
    deadline: Deadline,
    on_progress: OnProgress,
) -> OptimizeResult:
    measured, notes = Candidates(skipped=skipped), SearchNotes()
    try:
        if config.formats is not None:
            measure_encoder_candidates(setup, recipes, measured, on_progress)
        else:
            search_encoder(
                setup,
                deadline,
                measured,
                notes.not_tried,
                on_progress,
                prune=config.prune,
                recover=config.recover,
                train_minutes=config.train_minutes,
            )
    except StoppedError as error:
        if config.report is None or not measured.measurements:
            raise
        notes.stopped = str(error)
        notes.exit_code = error.exit_code
    return finish(setup, measured, notes, config, on_progress)


def _require_vectors(original: Checkpoint) -> None:
    if original.spec.gives_scores:
        raise UnsupportedError(
            "the search compares encoders by the cosine, and that of two numbers is 1 or -1",
            seen=f"{original.path}, one number for a text",
            remedy="Compress it by the recipes in question (`paredown compress --recipe int8`, "
            "w8a8, int4-g32): each proof says how far ranks agree.",
        )
