"""The task: each of MRPC's positive pairs is found among all its sentences."""

from dataclasses import dataclass
from pathlib import Path

from paredown.evaluate.tasks.glue import find_task
from paredown.evaluate.tasks.glue_file import read_glue

_FILES = ("train.tsv", "dev.tsv")


@dataclass(frozen=True, kw_only=True)
class Paraphrases:
    """`sentences` differ from each other. `pairs` are places in them: the first asks, and the
    second is to be found among all others."""

    sentences: tuple[str, ...]
    pairs: tuple[tuple[int, int], ...]

    def some(self, num_pairs: int | None) -> "Paraphrases":
        """Returns so many pairs, evenly spaced, among the same sentences; all for None."""
        if num_pairs is None:
            return self
        assert 0 < num_pairs <= len(self.pairs)
        places = [i * len(self.pairs) // num_pairs for i in range(num_pairs)]
        return Paraphrases(sentences=self.sentences, pairs=tuple(self.pairs[i] for i in places))

    @property
    def queries(self) -> list[int]:
        return [asks for asks, _ in self.pairs]

    @property
    def relevant(self) -> list[list[int]]:
        return [[wanted] for _, wanted in self.pairs]


def read_paraphrases(folder: Path) -> Paraphrases:
    """Reads the train and dev files of MRPC. Raises ConfigError for other files."""
    task = find_task("mrpc")
    places: dict[str, int] = {}
    pairs: list[tuple[int, int]] = []
    for name in _FILES:
        examples = read_glue(task, folder / name)
        for texts, label in zip(examples.texts, examples.labels, strict=True):
            first, second = (places.setdefault(text, len(places)) for text in texts)
            if label == 1 and first != second:
                pairs.append((first, second))
    return Paraphrases(sentences=tuple(places), pairs=tuple(pairs))
