"""llama.cpp's own vectors: texts and their ids, for each vocabulary that we read."""

from pathlib import Path

import pytest

from drivers.shared_data import data_folder, needs_data
from paredown.models.text.tokenizer import Tokenizer

FOLDER = "tokenizers/gguf-vocab"
NAMES = ("deepseek-coder", "falcon", "gpt-2", "llama-spm", "phi-3", "bert-bge")


def vectors(path: Path) -> list[tuple[str, list[int]]]:
    """The texts of PATH.inp, each with a line of ids in PATH.out."""
    texts = Path(f"{path}.inp").read_text("utf-8").split("\n__ggml_vocab_test__\n")
    lines = Path(f"{path}.out").read_text("utf-8").splitlines()
    return [
        (text, [int(one) for one in line.split()]) for text, line in zip(texts, lines, strict=False)
    ]


@needs_data(FOLDER)
@pytest.mark.parametrize("name", NAMES)
def test_the_ids_are_llama_cpps(name: str) -> None:
    folder = data_folder(FOLDER)
    assert folder is not None
    path = folder / f"ggml-vocab-{name}.gguf"
    found = vectors(path)
    assert len(found) > 40
    tokenizer = Tokenizer.open(path)
    for text, ids in found:
        assert tokenizer.encode(text) == ids, text


@needs_data(FOLDER)
def test_a_text_stands_between_berts_tokens() -> None:
    folder = data_folder(FOLDER)
    assert folder is not None
    tokenizer = Tokenizer.open(folder / "ggml-vocab-bert-bge.gguf")
    assert (tokenizer.prompt_prefix, tokenizer.prompt_suffix) == ((101,), (102,))
    assert tokenizer.pair_form.joined([7], [8, 9]) == (
        [101, 7, 102, 8, 9, 102],
        [0, 0, 0, 1, 1, 1],
    )
    assert Tokenizer.open(folder / "ggml-vocab-bert-bge.gguf").decode([101, 7592, 102]) == "hello"
