"""`paredown generate`: continues prompts, one as a stream, many as a batch."""

import argparse
import sys
import time
from pathlib import Path

from paredown.cli.options.attention_sinks import add_attention_sinks_arguments
from paredown.cli.options.run import add_executor_arguments, run_keywords
from paredown.cli.options.sampling import add_sampling_arguments, sampling_params
from paredown.cli.options.shared import MODEL, add_common_arguments
from paredown.cli.options.speculation import (
    add_speculation_arguments,
    describe_speculation,
    speculation_config,
)
from paredown.cli.printed import say, say_answer, say_json, tell
from paredown.cli.streams import text_of
from paredown.cli.tables.notes import tell_notes
from paredown.engine.llm import LLM, Completion
from paredown.engine.prompt import begins_twice, encode_prompt
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.errors import ConfigError
from paredown.units import MEBI, format_bytes

EXAMPLES = """examples:
  paredown generate "Once upon a time"
  paredown generate "It was" --temperature 0 --max-tokens 50 --model my-model
  paredown generate "It was" --model HuggingFaceTB/SmolLM2-135M-Instruct
  echo "The old house" | paredown generate --echo
  paredown generate --prompts-file prompts.txt --seed 1 --json
  paredown generate "It was" --speculate draft
  paredown generate "Is the sea blue?" --choice yes --choice no
  paredown generate "It was" --max-tokens 100000 --ignore-eos --attention-sinks 4

On a terminal, characters of an answer that would steer it are escaped (\\x1b); a file or another
program gets the answer as the model wrote it.
"""
EXIT_FAILED = 1
_MAX_PROMPTS_BYTES = 64 * MEBI
_TWICE = (
    "{} of the prompts begin with the token that the tokenizer puts before a text: the model sees "
    "it twice; leave it out of the prompt"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("prompt", nargs="?", help="text to continue (default, and for -: stdin)")
    parser.add_argument(
        "-m",
        "--model",
        help=MODEL,
        metavar="MODEL",
    )
    parser.add_argument(
        "--prompts-file",
        type=Path,
        help="file with a prompt in each line, answered as one batch",
        metavar="FILE",
    )
    parser.add_argument("--echo", action="store_true", help="print the prompt before its answer")
    add_common_arguments(parser, model=None, decode_threads=True)
    add_sampling_arguments(parser, max_tokens=128)
    add_speculation_arguments(parser)
    add_attention_sinks_arguments(parser)
    add_executor_arguments(parser)


def run(args: argparse.Namespace) -> int:
    sampling_params(args)  # raises before the model is loaded
    prompts, keywords = _read_prompts(args), run_keywords(args)
    llm = LLM(args.model, speculation=speculation_config(args), **keywords)
    if args.echo and llm.engine.executor.spec.encoder is not None:
        raise ConfigError(
            "an encoder-decoder answers a prompt and does not continue it",
            seen="--echo",
            remedy="Leave --echo out; --json has the prompt beside its answer.",
        )
    params = sampling_params(args, llm.sampling_defaults)
    if (sinks := keywords.get("sinks")) is not None:
        tell(sinks.arithmetic())
    tell_notes(llm.notes)
    # The rest of a text cannot change its first tokens.
    starts = [encode_prompt(llm.tokenizer, prompt[:1000]) for prompt in prompts]
    if num_twice := sum(begins_twice(llm.tokenizer, start) for start in starts):
        tell_notes([_TWICE.format(num_twice)])
    start_s = time.monotonic()
    if args.json or args.prompts_file is not None:
        completions = llm.generate(prompts, params)
        wall_s = time.monotonic() - start_s
        if args.json:
            say_json(_as_json(completions, wall_s) | _speculation(llm))
        else:
            _print_all(completions, echo=args.echo)
        num_tokens = sum(len(one.token_ids) for one in completions)
        tell(f"{num_tokens} tokens in {wall_s:.2f} s: {num_tokens / wall_s:,.0f} tokens/s")
        errors = [one.error for one in completions if one.error is not None]
    else:
        errors = _print_stream(llm, prompts[0], params, echo=args.echo)
    if llm.engine.speculator is not None:
        tell(describe_speculation(llm.engine.speculator.stats))
    for error in errors:
        tell(f"paredown: {error}")
    return EXIT_FAILED if errors else 0


def _read_prompts(args: argparse.Namespace) -> list[str]:
    if args.prompts_file is not None:
        if args.prompt is not None:
            raise ConfigError(
                "a prompt and a file of prompts were given",
                seen=f"{args.prompt!r} and {args.prompts_file}",
                remedy="Give one of them.",
            )
        try:
            with args.prompts_file.open("rb") as file:
                raw = file.read(_MAX_PROMPTS_BYTES + 1)
            lines = raw[:_MAX_PROMPTS_BYTES].decode().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                "the file of prompts cannot be read",
                seen=f"{args.prompts_file}: {error}",
                remedy="Name a UTF-8 text file with one prompt per line.",
            ) from error
        if len(raw) > _MAX_PROMPTS_BYTES:
            raise ConfigError(
                "the file of prompts is too long",
                seen=f"more than {format_bytes(_MAX_PROMPTS_BYTES)}",
                remedy="Split it, and run once for each part.",
            )
        prompts = [line for line in lines if line.strip()]
        if not prompts:
            raise ConfigError(
                "the file of prompts is empty", seen=args.prompts_file, remedy="Add a line."
            )
        return prompts
    if args.prompt is not None and args.prompt != "-":
        return [text_of(args.prompt)]
    if sys.stdin.isatty():
        raise ConfigError(
            "there is no prompt",
            seen="no argument, and stdin is a terminal",
            remedy='Give one: paredown generate "Once upon a time".',
        )
    try:
        return [sys.stdin.read().removesuffix("\n")]
    except UnicodeDecodeError as error:
        raise ConfigError(
            "stdin is not text", seen=error, remedy="Send UTF-8 text to stdin."
        ) from error


def _print_stream(llm: LLM, prompt: str, params: SamplingParams, *, echo: bool) -> list[str]:
    """Prints the answer as it arrives; returns what went wrong, if anything."""
    start_s = time.monotonic()
    num_tokens, first_s, error = 0, start_s, None
    for output in llm.stream(prompt, params):
        if num_tokens == 0:
            first_s = time.monotonic()
            if echo:
                say_answer(prompt)
        num_tokens += len(output.token_ids)
        error = output.error
        if output.text:
            say_answer(output.text)
    end_s = time.monotonic()
    say()
    line = f"{num_tokens} tokens; the first after {(first_s - start_s) * 1000:.1f} ms"
    if num_tokens > 1:
        line += f", then {(num_tokens - 1) / (end_s - first_s):,.0f} tokens/s"
    tell(line)
    return [] if error is None else [error]


def _print_all(completions: list[Completion], *, echo: bool) -> None:
    for number, completion in enumerate(completions):
        if number:
            say("---")
        say_answer(f"{completion.prompt}{completion.text}" if echo else completion.text)
        say()


def _as_json(completions: list[Completion], wall_s: float) -> dict[str, object]:
    num_tokens = sum(len(one.token_ids) for one in completions)
    return {
        "completions": [
            {
                "prompt": one.prompt,
                "text": one.text,
                "num_prompt_tokens": len(one.prompt_token_ids),
                "token_ids": one.token_ids,
                "finish_reason": one.finish_reason,
                "error": one.error,
            }
            for one in completions
        ],
        "num_tokens": num_tokens,
        "wall_s": wall_s,
        "tokens_per_s": num_tokens / wall_s,
    }


def _speculation(llm: LLM) -> dict[str, object]:
    speculator = llm.engine.speculator
    return {} if speculator is None else {"speculation": speculator.stats.as_json()}
