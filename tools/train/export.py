"""Write a checkpoint as a Hugging Face folder with its model card."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from tokenizers import Tokenizer, processors

from tools.train.books import read_split
from tools.train.card import Training, model_card
from tools.train.checkpoint import load_checkpoint
from tools.train.data import CHUNK
from tools.train.evaluate import evaluate
from tools.train.model import Decoder
from tools.train.places import ASSETS, RUNS, TOKENIZER, add_data_argument
from tools.train.shapes import SHAPES, Shape
from tools.train.tokenizer import END_OF_TEXT, END_OF_TEXT_ID

# The model continues prose and knows no roles: a conversation is its messages, one per paragraph.
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ message['content'] }}"
    "{% if not loop.last or add_generation_prompt %}{{ '\\n\\n' }}{% endif %}{% endfor %}"
)


def write_json(path: Path, value: dict[str, object]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def write_tokenizer(folder: Path, shape: Shape) -> None:
    """tokenizer.json, which puts end-of-text before a text, and tokenizer_config.json."""
    tokenizer = Tokenizer.from_file(str(TOKENIZER))
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{END_OF_TEXT} $A",
        pair=f"{END_OF_TEXT} $A $B",
        special_tokens=[(END_OF_TEXT, END_OF_TEXT_ID)],
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": shape.context,
            "model_input_names": ["input_ids", "attention_mask"],
            "bos_token": END_OF_TEXT,
            "eos_token": END_OF_TEXT,
            "clean_up_tokenization_spaces": False,
            "chat_template": CHAT_TEMPLATE,
        },
    )


def write_folder(folder: Path, shape: Shape, state: dict[str, Any]) -> None:
    """Everything except the model card."""
    folder.mkdir(parents=True, exist_ok=True)
    model = Decoder(shape)
    model.load_state_dict(state["model"])
    beside = folder / "model.safetensors.tmp"
    save_file(model.huggingface_tensors(), beside, metadata={"format": "pt"})
    beside.chmod(0o644)
    beside.replace(folder / "model.safetensors")
    write_json(folder / "config.json", shape.huggingface_config())
    write_json(
        folder / "generation_config.json",
        {"bos_token_id": END_OF_TEXT_ID, "eos_token_id": END_OF_TEXT_ID},
    )
    write_tokenizer(folder, shape)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=sorted(SHAPES))
    add_data_argument(parser)
    parser.add_argument("--stride", type=int, default=1, help="evaluate every n-th window only")
    args = parser.parse_args()
    shape, folder = SHAPES[args.name], ASSETS / args.name
    state = load_checkpoint(RUNS / args.name / "checkpoint.pt")
    write_folder(folder, shape, state)
    results = {
        split: evaluate(folder, read_split(args.data, split), args.stride)
        for split in ("valid", "test")
    }
    training = Training(
        steps=state["step"], tokens=state["chunks"] * CHUNK, hours=state["elapsed"] / 3600
    )
    card = model_card(args.name, shape, training, results, args.stride)
    (folder / "README.md").write_text(card, encoding="utf-8")
    for split, result in results.items():
        print(f"{args.name} {split}: {result.bits_per_byte:.4f} bits per byte")


if __name__ == "__main__":
    main()
