"""A tokenizer of BERT's kind over a few words: [PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, [MASK] 4, the
markers [Q] 5 and [D] 6, then letters and words."""

import json
import string
from pathlib import Path

from tokenizers import Tokenizer as Library
from tokenizers import models, normalizers, pre_tokenizers, processors

from paredown.models.text.tokenizer import Tokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[Q]", "[D]"]
WORDS = [*string.ascii_lowercase, *string.punctuation, *string.digits]
WORDS += [f"##{letter}" for letter in string.ascii_lowercase + string.digits]
NUM_WORDS = len(SPECIAL) + len(WORDS)


def word_library() -> Library:
    vocabulary = {word: number for number, word in enumerate([*SPECIAL, *WORDS])}
    library = Library(models.WordPiece(vocabulary, unk_token="[UNK]"))
    library.normalizer = normalizers.BertNormalizer(lowercase=True)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    library.add_special_tokens(SPECIAL)
    return library


def write_word_tokenizer(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    word_library().save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "BertTokenizer", "mask_token": "[MASK]", "pad_token": "[PAD]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def word_tokenizer(folder: Path) -> Tokenizer:
    write_word_tokenizer(folder)
    return Tokenizer.open(folder)
