"""What a tokenizer puts around and between two texts is what the tokenizers library puts there."""

import pytest
from tokenizers import processors

from fakes.small_tokenizers import byte_level
from fakes.word_tokenizer import word_library, write_word_tokenizer
from paredown.models.text.tokenizer import Tokenizer

BERT = processors.TemplateProcessing(
    single="[CLS] $A [SEP]",
    pair="[CLS] $A [SEP] $B:1 [SEP]:1",
    special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
)
ROBERTA = processors.RobertaProcessing(("[SEP]", 3), ("[CLS]", 2))
END = processors.TemplateProcessing(
    single="$A [SEP]", pair="$A $B:1 [SEP]:1", special_tokens=[("[SEP]", 3)]
)


@pytest.mark.parametrize("around", [BERT, ROBERTA, END, None])
def test_a_pair_is_put_together_as_the_library_does(tmp_path, around):
    library = word_library()
    library.post_processor = around
    write_word_tokenizer(tmp_path)
    library.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.open(tmp_path)
    for first, second in (("a b c", "d"), ("a", "b c d e"), ("", "a"), ("a", "")):
        whole = library.encode(first, second)
        joined = tokenizer.pair_form.joined(tokenizer.encode(first), tokenizer.encode(second))
        assert joined == (whole.ids, whole.type_ids)


def test_the_form_counts_its_own_tokens(tmp_path):
    write_word_tokenizer(tmp_path)
    form = Tokenizer.open(tmp_path).pair_form
    assert (form.before, form.between, form.after) == ((2,), (3,), (3,))
    assert form.num_special_tokens == 3
    byte_level().save(str(tmp_path / "tokenizer.json"))
    assert Tokenizer.open(tmp_path).pair_form.num_special_tokens == 0
