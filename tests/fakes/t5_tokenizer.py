"""A tokenizer with the form of T5's: pieces with scores, "▁" for spaces, </s> behind every text."""

import json
import string
from itertools import product
from pathlib import Path

import tokenizers

SPECIAL = ("<pad>", "</s>", "<unk>")
END = 1


def write_t5_tokenizer(folder: Path, vocab_size: int) -> None:
    """Writes tokenizer.json and tokenizer_config.json; every id below `vocab_size` has a piece."""
    pairs = ("".join(pair) for pair in product("etaoinshrdluc", repeat=2))
    starts = [f"▁{letter}" for letter in string.ascii_letters]
    single = list(map(chr, range(33, 127)))
    pieces = [*SPECIAL, "▁", *single, *starts, *pairs][:vocab_size]
    assert len(pieces) == vocab_size
    scored = [(piece, -12.0 / len(piece)) for piece in pieces]
    library = tokenizers.Tokenizer(tokenizers.models.Unigram(scored, unk_id=2))
    library.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    library.decoder = tokenizers.decoders.Metaspace()
    library.add_special_tokens(list(SPECIAL))
    library.post_processor = tokenizers.processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", END)]
    )
    library.save(str(folder / "tokenizer.json"))
    named = {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(named))
