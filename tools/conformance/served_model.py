"""Folders of the models that suites talk to: the built-in weights with our chat template."""

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from paredown.models.resolve import resolve_model
from paredown.models.text.tokenizer import Tokenizer

CHAT_TEMPLATE = Path(__file__).parent / "chat_template.jinja"
# What the prompts of the suites and their answers fit in, and what an encoder's texts do.
CONTEXT_TOKENS = 8192
TEXT_TOKENS = 512
# The model ends books, not answers: here an answer ends with its paragraph.
END_OF_PARAGRAPH = "\n\n"


@dataclass(frozen=True, kw_only=True)
class ServedModel:
    """A model that answers: with which chat template, or as an encoder."""

    template: Path = CHAT_TEMPLATE
    is_encoder: bool = False

    @property
    def num_positions(self) -> int:
        return TEXT_TOKENS if self.is_encoder else CONTEXT_TOKENS

    def folder(self, work: Path) -> Path:
        """Returns the model's folder below `work`, and writes it where it is not there yet."""
        base = resolve_model(None)
        template = self.template.read_text("utf-8")
        digest = hashlib.sha256(f"{self.num_positions}\0{template}".encode()).hexdigest()
        folder = work / f"model-{digest[:16]}"
        if not folder.exists():
            copy = work / f"{folder.name}.part"
            shutil.copytree(base, copy)
            _change(copy / "config.json", {"max_position_embeddings": self.num_positions})
            settings = {"chat_template": template, "model_max_length": self.num_positions}
            _change(copy / "tokenizer_config.json", settings)
            _change(copy / "generation_config.json", {"eos_token_id": _ends(base)})
            copy.rename(folder)
        return folder


def _ends(base: Path) -> list[int]:
    """Returns the end of a text and all tokens that end a paragraph."""
    vocab_size = json.loads((base / "config.json").read_text("utf-8"))["vocab_size"]
    tokenizer = Tokenizer.open(base)
    texts = [tokenizer.decode([token_id]) for token_id in range(vocab_size)]
    paragraphs = [number for number, text in enumerate(texts) if text.endswith(END_OF_PARAGRAPH)]
    return sorted({*tokenizer.eos_token_ids, *paragraphs})


def _change(path: Path, fields: Mapping[str, object]) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **fields}))
