"""The package's ROUGE-L is the formula, and what is missing is told."""

import builtins
import sys
from typing import Any

import pytest

from paredown.errors import UnsupportedError
from paredown.evaluate.tasks.rouge import load_rouge
from references.rouge_l import rouge_l


@pytest.mark.parametrize(
    ("expected", "answer"),
    [
        ("The cat sat on the mat.", "the cat sat on the mat"),
        ("a b c d e f", "a x c y e z"),
        ("a b c d", "d c b a"),
        ("one two", "three four"),
        ("one two three", ""),
        ("", ""),
        ("a", "a a a a"),
    ],
)
def test_it_is_the_formula_on_words_that_have_no_stem(expected: str, answer: str) -> None:
    assert load_rouge()(expected, answer) == pytest.approx(rouge_l(expected, answer), abs=1e-12)


def test_words_of_one_stem_are_the_same() -> None:
    assert load_rouge()("he walked", "he walking") == 1.0


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [one for one in sys.modules if one.startswith("rouge_score")]:
        monkeypatch.delitem(sys.modules, name)
    own = builtins.__import__

    def refuse(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("rouge_score"):
            raise ModuleNotFoundError(f"No module named {name!r}")
        return own(name, *rest, **more)

    monkeypatch.setattr("importlib.import_module", refuse)
    with pytest.raises(UnsupportedError, match="rouge-score"):
        load_rouge()
