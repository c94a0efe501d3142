"""ROUGE-L: how much of a text's words another text has in the same order (Lin 2004), as the package
rouge-score computes it, with stemming."""

import importlib
from collections.abc import Callable

from paredown.errors import UnsupportedError
from paredown.installation import pip

# Returns the F-measure, from 0 to 1, of an answer beside the expected text.
Rouge = Callable[[str, str], float]
_NAME = "rougeL"


def load_rouge() -> Rouge:
    """Returns the measure as (expected, answer). Raises UnsupportedError where rouge-score is not
    installed."""
    try:
        scoring = importlib.import_module("rouge_score.rouge_scorer")
    except ImportError as error:
        raise UnsupportedError(
            "ROUGE-L needs the package rouge-score",
            seen=error,
            remedy=f"Install it with `{pip('install', 'rouge-score')}`.",
        ) from error
    scorer = scoring.RougeScorer([_NAME], use_stemmer=True)

    def rouge(expected: str, answer: str) -> float:
        return float(scorer.score(expected, answer)[_NAME].fmeasure)

    return rouge
