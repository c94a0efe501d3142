"""OptimizeConfig: what a search tries, what may be lost, and where it writes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from paredown.compress.recipe_names import find_recipe
from paredown.compress.steps import RecoverStep
from paredown.errors import ConfigError, OutputError
from paredown.evaluate.texts.calibration_text import CalibrationConfig
from paredown.models.files.output_folder import check_output_folder
from paredown.optimize.bounds import Bounds
from paredown.optimize.mixed_recipes import is_mixed
from paredown.optimize.trained_candidates import trained_recipes

DEFAULT_TOKENS = 8192
DEFAULT_ROUNDS = 11
# A seventh of the windows that a single compression calibrates on. A search makes several
# compressions, and at widths that lose little the codes are as good.
DEFAULT_SAMPLES = 18
_NO_BOUNDS = Bounds()
_CALIBRATION = CalibrationConfig(num_samples=DEFAULT_SAMPLES)


@dataclass(frozen=True, kw_only=True)
class OptimizeConfig:
    """`output` and `report` are folders to write, which must not exist; None writes none. `bounds`
    without any limit allow the default loss: of perplexity, or of an encoder's cosine. `formats`
    are recipes; None searches near the bounds. `minutes` None means no deadline. With `prune` the
    search also removes weights, and trains smaller models too with `recover`. `train_minutes`
    trains the codes of candidates with few bits, each for so long."""

    output: Path | None = None
    report: Path | None = None
    bounds: Bounds = _NO_BOUNDS
    minutes: float | None = None
    formats: tuple[str, ...] | None = None
    num_tokens: int = DEFAULT_TOKENS
    text: Path | None = None
    num_rounds: int = DEFAULT_ROUNDS
    num_threads: int | None = None
    calibration: CalibrationConfig = _CALIBRATION
    prune: bool = False
    recover: RecoverStep | None = None
    train_minutes: float | None = None


def parse_formats(text: str | None) -> tuple[str, ...] | None:
    """Parses 'int8,mixed-4' into names; None stays None. Raises ConfigError for unknown ones."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if not is_mixed(name):
            find_recipe(name)
    return tuple(dict.fromkeys(names))


def _check_train_minutes(minutes: float, formats: tuple[str, ...] | None) -> None:
    if formats is not None:
        raise ConfigError(
            "--train-minutes adds candidates to a search, and --formats names all of them",
            seen=", ".join(formats),
            remedy="Leave one out; --formats takes trained recipes too: qad-int3-g64.",
        )
    trained_recipes("", minutes)


def check_config(config: OptimizeConfig) -> None:
    if config.prune and config.formats is not None:
        raise ConfigError(
            "--prune adds candidates to a search, and --formats names all of them",
            seen=", ".join(config.formats),
            remedy="Leave one out; --formats takes pruned recipes too: prune-ffn-25-int4-g128.",
        )
    if config.recover is not None and not config.prune:
        raise ConfigError(
            "a recovery is for pruned candidates, and none are asked for",
            seen=config.recover.name,
            remedy="Give --prune too.",
        )
    if config.train_minutes is not None:
        _check_train_minutes(config.train_minutes, config.formats)
    limits: Sequence[tuple[str, int]] = (
        ("--formats", 1 if config.formats is None else len(config.formats)),
        ("--tokens", config.num_tokens),
        ("--rounds", config.num_rounds),
    )
    for option, value in limits:
        if value < 1:
            raise ConfigError(f"{option} must be at least one", seen=value, remedy="Give more.")
    for path in (config.output, config.report):
        if path is not None:
            check_output_folder(path)
    if config.output is not None and config.report is not None:
        output, report = config.output.resolve(), config.report.resolve()
        if report in (output, *output.parents):
            raise OutputError(
                "the folder of the report cannot be, or hold, that of the checkpoint",
                seen=f"report {config.report}, checkpoint {config.output}",
                remedy="Choose another folder for the report (--report).",
            )
