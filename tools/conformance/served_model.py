"""Folders of the models that suites talk to: the weights of one model, with our chat template."""

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

CHAT_TEMPLATE = Path(__file__).parent / "chat_template.jinja"
# What the prompts of the suites and their answers fit in, and what an encoder's texts do.
CONTEXT_TOKENS = 8192
TEXT_TOKENS = 512


@dataclass(frozen=True, kw_only=True)
class ServedModel:
    """A model that answers: with which chat template, or as an encoder."""

    template: Path = CHAT_TEMPLATE
    is_encoder: bool = False

    @property
    def num_positions(self) -> int:
        return TEXT_TOKENS if self.is_encoder else CONTEXT_TOKENS

    def folder(self, base: Path, work: Path) -> Path:
        """Returns the model's folder below `work`, and writes it where it is not there yet: a copy
        of the folder `base` with this template and a context of `num_positions`."""
        template = self.template.read_text("utf-8")
        digest = hashlib.sha256(f"{base}\0{self.num_positions}\0{template}".encode()).hexdigest()
        folder = work / f"model-{digest[:16]}"
        if not folder.exists():
            copy = work / f"{folder.name}.part"
            shutil.copytree(base, copy)
            _change(copy / "config.json", {"max_position_embeddings": self.num_positions})
            settings = {"chat_template": template, "model_max_length": self.num_positions}
            _change(copy / "tokenizer_config.json", settings)
            (copy / "chat_template.jinja").unlink(missing_ok=True)
            copy.rename(folder)
        return folder


def _change(path: Path, fields: Mapping[str, object]) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **fields}))
