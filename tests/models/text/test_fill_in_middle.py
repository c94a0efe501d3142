"""Tokens around a gap are found by their names, whatever family the model is of."""

import pytest
import tokenizers
from tokenizers import AddedToken

from fakes.small_tokenizers import byte_level, write_folder
from paredown.models.text.fill_in_middle import FillInMiddle
from paredown.models.text.tokenizer import Tokenizer

FAMILIES = {
    "Qwen": ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    "StarCoder": ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    "SantaCoder": ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),
    "CodeLlama": ("▁<PRE>", "▁<SUF>", "▁<MID>"),
    "DeepSeek": ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
}


def with_tokens(*texts: str) -> tokenizers.Tokenizer:
    library = byte_level()
    library.add_tokens([AddedToken(one, special=True, normalized=False) for one in texts])
    return library


@pytest.mark.parametrize("names", FAMILIES.values(), ids=FAMILIES)
def test_the_tokens_of_each_family(names, tmp_path):
    library = with_tokens(*names, "<|endoftext|>")
    tokenizer = Tokenizer.open(write_folder(tmp_path, library))
    before, after, gap = map(library.token_to_id, names)
    found = tokenizer.fill_in_middle
    assert found == FillInMiddle(
        before_id=before,
        after_id=after,
        gap_id=gap,
        end_ids=tuple(sorted([before, after, gap, library.token_to_id("<|endoftext|>")])),
    )
    assert found.surround([5], [6, 7]) == [before, 5, after, 6, 7, gap]


@pytest.mark.parametrize("names", [(), ("<fim_prefix>",), ("<fim_prefix>", "<fim_suffix>")])
def test_a_model_without_all_of_them_has_none(names, tmp_path):
    tokenizer = Tokenizer.open(write_folder(tmp_path, with_tokens(*names)))
    assert tokenizer.fill_in_middle is None
