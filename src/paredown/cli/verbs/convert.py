"""`paredown convert`: a checkpoint in another format, with the same weights."""

import argparse
import json
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from paredown.cli.tables.notes import tell_notes
from paredown.cli.verification import Carrier
from paredown.compress.convert.convert import TARGETS, ConvertResult, convert, keeps_codes
from paredown.errors import OutputError
from paredown.evaluate.verify.verification_file import verification_path
from paredown.models.checkpoint import Checkpoint
from paredown.models.gguf.checkpoint import is_gguf
from paredown.models.resolve import resolve_model
from paredown.units import format_bytes

EXAMPLES = """examples:
  paredown convert my-model-gptq -o my-model --to compressed-tensors
  paredown convert my-model-int4 -o my-model-gptq --to gptq
  paredown convert my-model-llm-int8 -o my-model-bnb --to bitsandbytes
  paredown convert my-model-awq -o my-model-bf16 --to bf16 --json
  paredown convert my-model-int4-g32 -o my-model.gguf --to gguf     # Q4_0, code for code
  paredown convert my-model -o my-model.gguf --to gguf-q8_0         # floats, as llama.cpp rounds

Between quantized formats no number changes; what the target cannot hold is refused, with the name
of the layer, and the proof of the source (verification.json) goes on with logits computed anew.
bf16, fp16 and fp32 dequantize; gguf-NAME quantizes floats.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("model", nargs="?", help="checkpoint folder (default: the packaged model)")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, help="what to write; must not exist"
    )
    parser.add_argument("--to", choices=list(TARGETS), required=True, help="the format to write")
    parser.add_argument(
        "--no-verify", action="store_true", help="do not carry the model's verification.json on"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    source = Checkpoint.open(resolve_model(args.model))
    _check_place(args.output)
    carrier = None
    if not args.no_verify:
        carrier = Carrier(source, keeps_codes=keeps_codes(source, args.to))
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(f"converting to {args.to}", total=1.0)
        result = convert(
            source,
            args.output,
            args.to,
            lambda what, share: progress.update(task, description=what, completed=share),
            finish=carrier,
        )
    tell_notes(result.notes)
    if args.json:
        print(json.dumps(_as_json(result) | _verification_json(carrier), indent=2))
        return 0
    console = Console()
    console.print(
        f"{result.path}: {result.target}, {format_bytes(result.file_bytes)} "
        f"(was {format_bytes(source.file_bytes)}), {result.bits_per_weight:.2f} bits per weight"
    )
    for name, count in result.clamped.items():
        console.print(f"clamped: {count} values of {name} are beyond the range of {result.target}")
    console.print(_verification_line(carrier))
    return 0


def _check_place(output: Path) -> None:
    """The proof of a GGUF file that is gone would be taken for that of the new one. Raises
    OutputError."""
    path = verification_path(output)
    if is_gguf(output) and path.exists():
        raise OutputError(
            f"{path} exists already, the proof of another file",
            seen="a file",
            remedy="Remove it, or choose another name.",
        )


def _verification_line(carrier: Carrier | None) -> str:
    if carrier is None:
        return "not verified, as asked; `paredown serve` will have nothing to check"
    if carrier.carried is None:
        return f"not verified: {carrier.skipped}; no verification is written"
    return f"verified: {carrier.carried.words}"


def _verification_json(carrier: Carrier | None) -> dict[str, object]:
    carried = None if carrier is None else carrier.carried
    return {
        "verification": None if carried is None else carried.as_json(),
        "not_verified": "--no-verify" if carrier is None else carrier.skipped,
    }


def _as_json(result: ConvertResult) -> dict[str, object]:
    return {
        "target": result.target,
        "path": str(result.path),
        "bits_per_weight": result.bits_per_weight,
        "file_bytes": result.file_bytes,
        "notes": list(result.notes),
        "clamped": dict(result.clamped),
    }
