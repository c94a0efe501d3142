"""`paredown inspect`: computes where a model's time and memory go, without running it."""

import argparse
from dataclasses import dataclass, replace
from pathlib import Path

from paredown.cli.console import make_console
from paredown.cli.options.kv_dtype import add_kv_dtype_argument
from paredown.cli.options.machine import add_machine_argument, find_machine_profile
from paredown.cli.options.picture_path import check_picture_path
from paredown.cli.options.shared import MODEL_OR_CONFIG, add_common_arguments
from paredown.cli.printed import say_json
from paredown.cli.tables.inspect import print_inspection
from paredown.cli.tables.inspect_encoder import print_encoder_inspection
from paredown.cli.tables.notes import tell_notes
from paredown.cli.verbs.inspect_formulas import print_formulas
from paredown.cost.encoder_inspection import inspect_encoder
from paredown.cost.inspection import Inspection, inspect_model
from paredown.cost.machines import THIS
from paredown.cost.model_formats import ModelFormats
from paredown.cost.serving import BatchLoad
from paredown.errors import (
    CapacityError,
    CheckpointError,
    ConfigError,
    RequestError,
    UnsupportedError,
)
from paredown.evaluate.pictures.roofline_plot import write_roofline
from paredown.formats.table import COSTED_FORMATS
from paredown.models.chat.described import described
from paredown.models.checkpoint import Checkpoint
from paredown.models.config_alone import is_config_alone, read_config_alone
from paredown.models.gguf.checkpoint import is_gguf
from paredown.models.hub.hub_source import model_name
from paredown.models.resolve import resolve_model
from paredown.models.run_forms import model_formats, run_forms
from paredown.models.text.tokenizer import Tokenizer
from paredown.spec.kv_choice import resolve_kv_choice
from paredown.spec.model import ModelSpec
from paredown.spec.weight import WeightSpec

EXAMPLES = """examples:
  paredown inspect
  paredown inspect my-model --weights int4-g32 --batch 8 --context 2048
  paredown inspect config.json --machine h100 --plot roofline.png
  paredown inspect my-model --symbolic
"""

# Tokens of a text where nothing is asked.
_TEXT_TOKENS = 128
# Options for numbers, with their defaults.
_NUMBERS = {
    "batch": 1,
    "prompt_tokens": None,
    "context": None,
    "machine": THIS,
    "threads": None,
    "acceptance": 0.7,
    "plot": None,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument(
        "--batch", type=int, default=1, help="sequences that decode, or texts, at once"
    )
    parser.add_argument(
        "--prompt-tokens",
        type=int,
        default=None,
        help="tokens of a prompt (default 512), or of a text (default 128)",
    )
    parser.add_argument(
        "--context",
        type=int,
        default=None,
        help="tokens of a sequence that decodes, at most what the model holds (default 1024)",
    )
    parser.add_argument(
        "--weights", default=None, help="format of the linear layers (default: as they are stored)"
    )
    parser.add_argument(
        "--head", default=None, help="format of the output layer (default: as it is stored)"
    )
    add_kv_dtype_argument(parser)
    add_machine_argument(parser)
    parser.add_argument(
        "--acceptance",
        type=float,
        default=0.7,
        help="share of a speculator's draft tokens that are right, for what it gains (default 0.7)",
    )
    parser.add_argument("--symbolic", action="store_true", help="formulas in place of numbers")
    parser.add_argument("--plot", type=Path, default=None, help="roofline picture: .png or .html")
    add_common_arguments(parser, model=MODEL_OR_CONFIG)


def run(args: argparse.Namespace) -> int:
    if not 0 <= args.acceptance < 1:
        raise ConfigError(
            "--acceptance is a share", seen=args.acceptance, remedy="Use 0 up to below 1."
        )
    if args.symbolic:
        _check_symbolic(args)
    check_picture_path(args.plot, suffixes=(".png", ".html"))
    subject = _read(args)
    tell_notes(subject.notes)
    if args.symbolic:
        print_formulas(subject.spec, subject.formats, as_json=args.json)
        return 0
    if not subject.spec.generates:
        _inspect_encoder(args, subject)
        return 0
    found = inspect_model(
        subject.spec,
        subject.formats,
        _workload(args, subject.spec),
        find_machine_profile(args),
        acceptance=args.acceptance,
    )
    if args.plot is not None:
        write_roofline(found, subject.name, args.plot)
    if args.json:
        say_json(_as_json(found, subject.chat))
    else:
        console = make_console()
        print_inspection(found, subject.name, console)
        for line in subject.chat:
            console.print(line, style="dim")
    return 0


def _as_json(found: Inspection, chat: tuple[str, ...]) -> dict[str, object]:
    return {**found.as_json(), "chat": list(chat)}


def _inspect_encoder(args: argparse.Namespace, subject: "_Subject") -> None:
    for option, value in (("--context", args.context), ("--plot", args.plot)):
        if value is not None:
            raise ConfigError(
                f"{option} is for models that generate",
                seen=f"{option} {value}, an encoder",
                remedy="Leave it out; --batch is the number of texts, --prompt-tokens their "
                "length.",
            )
    spec = subject.spec
    tokens = args.prompt_tokens
    found = inspect_encoder(
        spec,
        subject.formats,
        find_machine_profile(args),
        num_texts=args.batch,
        text_tokens=min(_TEXT_TOKENS, spec.max_positions) if tokens is None else tokens,
    )
    if args.json:
        say_json(found.as_json())
    else:
        print_encoder_inspection(found, subject.name, make_console())


def _check_symbolic(args: argparse.Namespace) -> None:
    """Raises ConfigError for options that formulas cannot use."""
    for option, without in _NUMBERS.items():
        value = getattr(args, option)
        if value != without:
            name = f"--{option.replace('_', '-')}"
            raise ConfigError(
                f"--symbolic and {name} exclude each other",
                seen=f"{name} {value}",
                remedy="Leave one out: formulas have letters for loads, and no machine.",
            )


@dataclass(frozen=True, kw_only=True)
class _Subject:
    name: str
    spec: ModelSpec
    formats: ModelFormats
    notes: tuple[str, ...]
    # How it writes its turns in a chat.
    chat: tuple[str, ...] = ()


def _read(args: argparse.Namespace) -> _Subject:
    path = None if args.model is None else Path(args.model)
    if path is not None and path.exists() and is_config_alone(path):
        alone = read_config_alone(path)
        stored = ModelFormats(
            linear=alone.weights, output=alone.weights, embedding_bits=alone.weights.bits
        )
        formats = _formats(args, alone.spec, stored)
        return _Subject(name=path.name, spec=alone.spec, formats=formats, notes=alone.notes)
    checkpoint = Checkpoint.open(resolve_model(args.model))
    stored = model_formats(checkpoint)
    specs = {module: form.asked for module, form in run_forms(checkpoint).items()}
    linear = stored.linear
    notes = list(checkpoint.notes)
    others = {one.name for one in specs.values() if one != linear} - {
        stored.output.name,
        specs[checkpoint.names.embedding].name,
    }
    if others and args.weights is None:
        notes.append(
            f"all linear layers are counted as {linear.name}; some are {', '.join(others)}"
        )
    return _Subject(
        name=model_name(checkpoint.path),
        spec=checkpoint.spec,
        formats=_formats(args, checkpoint.spec, stored),
        notes=tuple(notes),
        chat=_chat(checkpoint),
    )


def _chat(checkpoint: Checkpoint) -> tuple[str, ...]:
    """Returns how a model that generates writes its turns; nothing without a chat template."""
    path = checkpoint.path
    if not checkpoint.spec.generates or not (is_gguf(path) or (path / "tokenizer.json").is_file()):
        return ()
    try:
        tokenizer = Tokenizer.open(path)
        return described(tokenizer.turn_format) if tokenizer.has_chat_template else ()
    except (CapacityError, CheckpointError, RequestError, UnsupportedError) as error:
        return (f"chats cannot be rendered: {error}",)


def _formats(args: argparse.Namespace, spec: ModelSpec, stored: ModelFormats) -> ModelFormats:
    """Returns the formats asked for, else those of the model."""
    return replace(
        stored,
        linear=stored.linear if args.weights is None else _named(args.weights, "--weights"),
        output=stored.output if args.head is None else _named(args.head, "--head"),
        kv_dtype=resolve_kv_choice(args.kv_dtype or stored.kv_dtype, spec.num_layers),
    )


def _named(name: str, option: str) -> WeightSpec:
    if name not in COSTED_FORMATS:
        raise ConfigError(
            f"{option} names no format",
            seen=name,
            remedy=f"Use one of {', '.join(COSTED_FORMATS)}.",
        )
    return COSTED_FORMATS[name]


def _workload(args: argparse.Namespace, spec: ModelSpec) -> BatchLoad:
    """Returns the load that the arguments ask for; its defaults end at the model's context."""
    prompt, context = args.prompt_tokens, args.context
    return BatchLoad(
        batch=args.batch,
        prompt_tokens=min(512, spec.max_positions) if prompt is None else prompt,
        context=min(1024, spec.max_positions) if context is None else context,
    )
