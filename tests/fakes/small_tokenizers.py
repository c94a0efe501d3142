"""Small tokenizers, and folders with files of a test's choice beside tokenizer.json."""

import json
from pathlib import Path

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

NAMES: dict[str, object] = {"bos_token": "<s>", "eos_token": "</s>"}


def special(*texts: str) -> list[AddedToken]:
    return [AddedToken(text, special=True, normalized=False) for text in texts]


def byte_level(*more: str, bos: bool = False) -> Tokenizer:
    """Returns a tokenizer with <s> as 0, </s> as 1, then the 256 bytes, then `more` special
    tokens."""
    vocabulary = {"<s>": 0, "</s>": 1}
    for letter in sorted(pre_tokenizers.ByteLevel.alphabet()):
        vocabulary[letter] = len(vocabulary)
    library = Tokenizer(models.BPE(vocabulary, []))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens(special("<s>", "</s>", *more))
    if bos:
        library.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", 0)]
        )
    return library


def sentence_piece() -> Tokenizer:
    """Returns a tokenizer with <unk> 0, <s> 1, </s> 2, "▁" 3, "t" 4, "o" 5, "to" 6, "▁to" 7, then
    the 256 bytes; <s> precedes a text."""
    pieces = ["<unk>", "<s>", "</s>", "▁", "t", "o", "to", "▁to"]
    pieces += [f"<0x{byte:02X}>" for byte in range(256)]
    library = Tokenizer(
        models.BPE(
            {piece: i for i, piece in enumerate(pieces)},
            [("t", "o"), ("▁", "to")],
            unk_token="<unk>",
            byte_fallback=True,
        )
    )
    library.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    library.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    library.add_special_tokens(special("<unk>", "<s>", "</s>"))
    library.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    return library


def word_piece() -> Tokenizer:
    """Returns a tokenizer of words of letters and single punctuation marks; decoding joins by
    spaces."""
    words = ["[UNK]", "<s>", "</s>", "it", "n", "t", "s", "m", "'", ".", ",", "!", "?", "##ing"]
    library = Tokenizer(
        models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]")
    )
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.WordPiece(cleanup=False)
    return library


def write_folder(
    folder: Path, library: Tokenizer, names: dict[str, object] | None = None, **files: object
) -> Path:
    """Writes the folder. `names` is tokenizer_config.json (default: the bos and eos tokens);
    `files` are further JSON files by name without .json."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.json"):
        old.unlink()
    library.save(str(folder / "tokenizer.json"))
    names = NAMES if names is None else names
    for name, values in {"tokenizer_config": names, "config": {}, **files}.items():
        (folder / f"{name}.json").write_text(json.dumps(values))
    return folder
