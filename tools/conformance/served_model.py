"""Folders of the models that suites talk to: the weights of one model, with our chat template."""

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

CHAT_TEMPLATE = Path(__file__).parent / "chat_template.jinja"
# What the prompts of the suites and their answers fit in.
CONTEXT_TOKENS = 8192


@dataclass(frozen=True, kw_only=True)
class ServedModel:
    """A model that answers: with which chat template, or as an encoder."""

    template: Path = CHAT_TEMPLATE
    is_encoder: bool = False

    def folder(self, base: Path, work: Path) -> Path:
        """Returns the model's folder below `work`, and writes it where it is not there yet: a copy
        of the folder `base` with this template and a context of at least CONTEXT_TOKENS."""
        template = self.template.read_text("utf-8")
        digest = hashlib.sha256(f"{base}\0{template}".encode()).hexdigest()
        folder = work / f"model-{digest[:16]}"
        if not folder.exists():
            copy = work / f"{folder.name}.part"
            shutil.copytree(base, copy)
            _widen_context(copy / "config.json")
            _set_template(copy, template)
            copy.rename(folder)
        return folder


def _widen_context(path: Path) -> None:
    config = json.loads(path.read_text("utf-8"))
    config["max_position_embeddings"] = max(config["max_position_embeddings"], CONTEXT_TOKENS)
    path.write_text(json.dumps(config))


def _set_template(folder: Path, template: str) -> None:
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text("utf-8"))
    config["chat_template"] = template
    config["model_max_length"] = CONTEXT_TOKENS
    path.write_text(json.dumps(config))
    (folder / "chat_template.jinja").unlink(missing_ok=True)
