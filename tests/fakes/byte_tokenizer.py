"""Writes a byte-level tokenizer.json for tiny checkpoints: <|endoftext|> is 0, and byte b is b + 1
in some order."""

from pathlib import Path

import tokenizers


def write_byte_tokenizer(folder: Path, *, start_token: bool = False) -> None:
    """Writes the file. `start_token` makes the template put <|endoftext|> before a text."""
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    vocabulary = {"<|endoftext|>": 0} | {c: i + 1 for i, c in enumerate(sorted(alphabet))}
    library = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, []))
    library.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = tokenizers.decoders.ByteLevel()
    library.add_special_tokens(["<|endoftext|>"])
    if start_token:
        library.post_processor = tokenizers.processors.TemplateProcessing(
            single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
        )
    library.save(str(folder / "tokenizer.json"))
