"""Folders of tiny encoders as sentence-transformers writes them, over a few words."""

import json
from pathlib import Path
from typing import Any

from tokenizers import processors
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from fakes.small_tokenizers import NAMES, byte_level
from fakes.tiny_encoders import variant, widened
from fakes.word_tokenizer import NUM_WORDS, word_library, write_word_tokenizer

END, BEGIN = ("[SEP]", 3), ("[CLS]", 2)


def write_modules(folder: Path, pooling: str | None, *, normalizes: bool = True) -> None:
    """Writes modules.json with one kind of pooling, or with none."""
    modules = ["Transformer"] + ["Pooling"] * (pooling is not None) + ["Normalize"] * normalizes
    entries = []
    for number, kind in enumerate(modules):
        path = "" if kind == "Transformer" else f"{number}_{kind}"
        kind_of = f"sentence_transformers.models.{kind}"
        entries.append({"idx": number, "name": str(number), "path": path, "type": kind_of})
        if path:
            (folder / path).mkdir()
    (folder / "modules.json").write_text(json.dumps(entries))
    if pooling is not None:
        config = {"word_embedding_dimension": 64, "pooling_mode": pooling}
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(config))


def write_settings(folder: Path, name: str, **settings: Any) -> None:
    """Adds fields to one of a folder's files."""
    path = folder / f"{name}.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(known | settings))


def write_bert(
    folder: Path, kind: str = "plain", pooling: str | None = "mean", **changes: Any
) -> PreTrainedModel:
    """Writes a BERT; `kind` "labels" is a classifier, which has no modules."""
    model = variant("bert", kind, vocab_size=NUM_WORDS, **changes)(folder)
    write_word_tokenizer(folder)
    if kind == "plain":
        write_modules(folder, pooling)
    return model


def write_splade(folder: Path) -> PreTrainedModel:
    """Writes a BERT that predicts masked tokens, pooled to weights of the vocabulary."""
    model = variant("bert", "masked", vocab_size=NUM_WORDS)(folder)
    write_word_tokenizer(folder)
    sparse = "sentence_transformers.sparse_encoder.models"
    entries = [
        {"idx": 0, "name": "0", "path": "", "type": f"{sparse}.MLMTransformer"},
        {"idx": 1, "name": "1", "path": "1_SpladePooling", "type": f"{sparse}.SpladePooling"},
    ]
    (folder / "modules.json").write_text(json.dumps(entries))
    (folder / "1_SpladePooling").mkdir()
    config = {"pooling_strategy": "max", "activation_function": "relu"}
    (folder / "1_SpladePooling" / "config.json").write_text(json.dumps(config))
    return model


def write_byte_decoder(folder: Path) -> PreTrainedModel:
    """Writes the same decoder over bytes, which GGUF has a tokenizer for: </s> is 1."""
    library = byte_level()
    model = write_decoder(folder, vocab_size=library.get_vocab_size())
    library.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    library.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **NAMES}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return model


def write_decoder(folder: Path, vocab_size: int = NUM_WORDS) -> PreTrainedModel:
    """Writes a decoder whose vectors are those of the end token, which the tokenizer's
    post-processor appends."""
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=False,
    )
    model = widened(LlamaForCausalLM(config))
    model.save_pretrained(folder)
    write_word_tokenizer(folder)
    library = word_library()
    library.post_processor = processors.TemplateProcessing(single="$A [SEP]", special_tokens=[END])
    library.save(str(folder / "tokenizer.json"))
    write_modules(folder, "lasttoken")
    return model
