"""Small tokenizers of llama.cpp's kinds, trained on a few sentences, and sample texts."""

import json
from collections.abc import Sequence
from pathlib import Path

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

TEXTS = (
    "It was late in the evening when the ship, which had been at sea for 12 days, came home.",
    "In 1776 there were 13 colonies; pi is 3.14159 and 1234567 is a number.",
    "'Tis the season: don't, DON'T, we'LL, they've, I'd, o'clock 'twas",
    "def f(x):\n    return x  # comment\n\n\n\tbar\r\n\r\n  y   ",
    "naïve café — “quoted” 日本語 текст, ελληνικά; 🙂🙃 ½ ²",
    "HTTPServer camelCase snake_case kebab-case a/b//c ...!!!",
    " leading, trailing ",
    "\n",
    "<|end|>the<|end|>",
    "",
)
PIECES = ("the ship", "in the evening", "come home", "there there", "at sea", "numbers")
CORPUS = [text * 3 for text in TEXTS[:7]] + ["the there then them ship ships evening home " * 20]
END = "<|end|>"


def write_byte_level(folder: Path, patterns: Sequence[str], ignore_merges: bool) -> int:
    """Writes tokenizer.json and the files beside it; returns the number of tokens."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(one), "isolated") for one in patterns),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=500, initial_alphabet=alphabet, show_progress=False, min_frequency=2
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_special_tokens([AddedToken(END, special=True, normalized=False)])
    return _save(tokenizer, folder)


def write_sentence_piece(folder: Path, prefix: bool) -> int:
    """Writes a tokenizer like Llama 2's as Transformers converts it: bytes, then pieces with ▁ for
    a space."""
    trained = Tokenizer(models.BPE())
    trained.normalizer = normalizers.Replace(" ", "▁")
    trained.train_from_iterator(
        ["▁" + text for text in CORPUS], trainers.BpeTrainer(vocab_size=300, show_progress=False)
    )
    model = json.loads(trained.to_str())["model"]
    merged = {"".join(pair) for pair in model["merges"]}
    singles = [piece for piece in model["vocab"] if piece not in merged]
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["".join(pair) for pair in model["merges"]] + singles
    steps = [normalizers.Prepend("▁")] if prefix else []
    ends = [decoders.Strip(" ", 1, 0)] if prefix else []
    tokenizer = Tokenizer(
        models.BPE(
            vocab={piece: i for i, piece in enumerate(pieces)},
            merges=[tuple(pair) for pair in model["merges"]],
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *ends]
    )
    tokenizer.add_special_tokens(
        [AddedToken(one, special=True, normalized=False) for one in ("<unk>", "<s>", "</s>", END)]
    )
    return _save(tokenizer, folder)


def _save(tokenizer: Tokenizer, folder: Path) -> int:
    bos = tokenizer.id_to_token(1)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[bos, "$A"], special_tokens=[(bos, 1)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text("{}")
    (folder / "config.json").write_text(json.dumps({"bos_token_id": 1, "eos_token_id": [2, 1]}))
    return tokenizer.get_vocab_size(with_added_tokens=True)
