"""A tiny classifier with a tokenizer, and files of GLUE tasks for it."""

from pathlib import Path

from fakes.tiny_encoders import variant
from fakes.word_tokenizer import write_word_tokenizer

NUM_ROWS = 12
_WORDS = ("a b c", "b", "c a d e", "z z", "f!", "x y z x y")


def write_classifier(folder: Path, labels: tuple[str, ...]) -> Path:
    """Writes a classifier whose labels have these names."""
    named = dict(enumerate(labels))
    variant("bert", "labels", id2label=named, label2id={one: n for n, one in named.items()})(folder)
    write_word_tokenizer(folder)
    return folder


def write_encoder(folder: Path) -> Path:
    """Writes an encoder that makes vectors."""
    variant("bert")(folder)
    write_word_tokenizer(folder)
    return folder


def write_sst2(folder: Path) -> Path:
    """Writes train.tsv and dev.tsv; every third row is positive."""
    rows = [f"{_WORDS[n % 6]} {n}\t{int(n % 3 == 0)}\n" for n in range(NUM_ROWS)]
    return _written(folder, "sentence\tlabel\n" + "".join(rows))


def write_rte(folder: Path) -> Path:
    rows = [
        f"{n}\t{_WORDS[n % 6]}\t{_WORDS[n % 5]}\t{'not_' if n % 2 else ''}entailment\n"
        for n in range(NUM_ROWS)
    ]
    return _written(folder, "index\tsentence1\tsentence2\tlabel\n" + "".join(rows))


def write_stsb(folder: Path) -> Path:
    rows = [f"{n}\tg\tf\t{_WORDS[n % 6]}\t{_WORDS[n % 5]}\t{n % 6}.0\n" for n in range(NUM_ROWS)]
    return _written(folder, "index\tgenre\tfile\tsentence1\tsentence2\tscore\n" + "".join(rows))


def _written(folder: Path, content: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("train.tsv", "dev.tsv"):
        (folder / name).write_text(content)
    return folder
