"""Arguments that verbs share: the model, the threads, and JSON output."""

import argparse

from paredown.kernels.thread_plan import MAX_DECODE_TOKENS

MODEL = (
    "folder, .gguf file, or a model of the Hugging Face hub: org/name, org/name@revision, "
    "org/name:file.gguf (default: the packaged model)"
)
MODEL_OR_CONFIG = (
    "folder, .gguf file, a config.json alone, or a model of the Hugging Face hub as org/name "
    "(default: the packaged model)"
)


def add_common_arguments(
    parser: argparse.ArgumentParser,
    *,
    model: str | None = MODEL,
    threads: bool = True,
    decode_threads: bool = False,
    printed: str = "the result",
) -> None:
    """Adds MODEL, --threads, --decode-threads and --json. `model` is its help, or None for a verb
    that takes the model otherwise. `threads` is False for a verb that uses none, and
    `decode_threads` True for one that generates. `printed` says what --json prints."""
    if model is not None:
        parser.add_argument("model", nargs="?", help=model)
    if threads:
        parser.add_argument("--threads", type=int, help="threads (default: all cores)", metavar="N")
    if decode_threads:
        parser.add_argument(
            "--decode-threads",
            type=int,
            help=f"threads of steps of at most {MAX_DECODE_TOKENS} tokens; no answer changes "
            "(default: as --threads)",
            metavar="N",
        )
    parser.add_argument("--json", action="store_true", help=f"print {printed} as JSON")
