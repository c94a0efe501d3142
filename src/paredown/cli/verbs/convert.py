"""`paredown convert`: writes a checkpoint in another format with the same weights."""

import argparse
from pathlib import Path

from paredown.cli.console import make_console
from paredown.cli.options.calibration import add_calibration_arguments
from paredown.cli.options.importance import add_importance_arguments, read_importance_config
from paredown.cli.options.shared import add_common_arguments
from paredown.cli.printed import say_json
from paredown.cli.progress_bar import progress_bar
from paredown.cli.tables.notes import tell_notes
from paredown.cli.tables.verification import print_carried_verification
from paredown.compress.convert.convert import CONVERSIONS
from paredown.jobs.convert import convert_and_carry
from paredown.units import format_bytes

EXAMPLES = """examples:
  paredown convert my-model-gptq -o my-model --to compressed-tensors
  paredown convert my-model-int4 -o my-model-gptq --to gptq
  paredown convert my-model-llm-int8 -o my-model-bnb --to bitsandbytes
  paredown convert my-model-awq -o my-model-bf16 --to bf16 --json
  paredown convert my-model-int4-g32 -o my-model.gguf --to gguf     # Q4_0, code for code
  paredown convert my-model -o my-model-q8_0.gguf --to gguf-q8_0    # floats, as llama.cpp rounds
  paredown convert my-model -o my-model-q4_k_m.gguf --to gguf-q4_k_m    # fitted by importance
  paredown convert my-model -o small.gguf --to gguf-q4_k_m --importance imatrix.gguf

Between quantized formats no number changes; what the target cannot hold is refused, with the name
of the layer, and the proof of the source (verification.json) goes on with logits computed anew. An
encoder is measured beside its source, to any format.
bf16, fp16 and fp32 dequantize; gguf-NAME quantizes floats. The mixtures of K-quants (gguf-q4_k_m,
gguf-q4_k_s, gguf-q5_k_m, gguf-q5_k_s, gguf-q6_k) are fitted by how much each column counts, which a
text that passes through the model tells.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        help="folder to write, for GGUF a file; must not exist",
        metavar="OUT",
    )
    parser.add_argument(
        "--to", choices=list(CONVERSIONS), required=True, help="the format to write"
    )
    parser.add_argument(
        "--no-verify",
        action="store_true",
        help="do not carry the model's verification.json on, nor measure an encoder",
    )
    add_importance_arguments(parser)
    add_calibration_arguments(parser)
    add_common_arguments(parser)


def run(args: argparse.Namespace) -> int:
    importance = read_importance_config(args)
    with progress_bar(f"converting to {args.to}") as bar:
        made = convert_and_carry(
            args.model,
            args.output,
            args.to,
            verify=not args.no_verify,
            num_threads=args.threads,
            on_progress=bar.show_share,
            importance=importance,
        )
    written = made.written
    tell_notes(written.notes)
    if args.json:
        say_json(made.as_json())
        return 0
    console = make_console()
    console.print(
        f"{written.path}: {written.target}, {format_bytes(written.file_bytes)} "
        f"(was {format_bytes(made.source_bytes)}), {written.bits_per_weight:.2f} bits per weight"
    )
    if made.importance is not None:
        console.print(f"fitted by the importance of columns in {made.importance.text}")
    for name, count in written.clamped.items():
        console.print(f"clamped: {count} values of {name} are beyond the range of {written.target}")
    print_carried_verification(console, made)
    return 0
