"""`paredown chat`: a conversation in the terminal."""

import argparse
import sys

from paredown.cli.options.attention_sinks import add_attention_sinks_arguments
from paredown.cli.options.run import add_executor_arguments, run_keywords
from paredown.cli.options.sampling import add_sampling_arguments, sampling_params
from paredown.cli.options.shared import add_common_arguments
from paredown.cli.printed import prompt, say, say_answer, say_json, tell
from paredown.cli.streams import text_of
from paredown.cli.tables.notes import tell_notes
from paredown.engine.llm import LLM
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.errors import ConfigError, RequestError, UnsupportedError

EXAMPLES = """examples:
  paredown chat
  paredown chat bartowski/SmolLM2-135M-Instruct-GGUF:Q4_K_M
  paredown chat my-model --system "Answer in one sentence." --temperature 0
  printf 'Hello\\nAnd then?\\n' | paredown chat --json

An empty line is skipped; Ctrl-D ends the conversation. On a terminal, characters of an answer that
would steer it are escaped (\\x1b); a file or another program gets them as they are.
"""
PROMPT = "> "
Messages = list[dict[str, object]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("--system", help="what the model is told first", metavar="TEXT")
    add_common_arguments(parser, decode_threads=True, printed="the whole conversation, at its end,")
    add_sampling_arguments(parser, max_tokens=256)
    add_attention_sinks_arguments(parser)
    add_executor_arguments(parser)


def run(args: argparse.Namespace) -> int:
    sampling_params(args)  # raises before the model is loaded
    keywords = run_keywords(args)
    llm = LLM(args.model, **keywords)
    params = sampling_params(args, llm.sampling_defaults)
    if (sinks := keywords.get("sinks")) is not None:
        tell(sinks.arithmetic())
    tell_notes(llm.notes)
    if not llm.tokenizer.has_chat_template:
        raise UnsupportedError(
            "this model has no chat template",
            seen=args.model or "the packaged model",
            remedy="Use `paredown generate`, or a model that was trained for conversation.",
        )
    llm.tokenizer.prepare_chat()
    start: Messages = []
    if args.system:
        start.append({"role": "system", "content": text_of(args.system)})
    messages = list(start)
    reads_last_turn = llm.tokenizer.reads_last_turn
    if reads_last_turn:
        tell("this model has no chat template: it answers each message by itself, after --system")
    while (line := _read_line()) is not None:
        if not line.strip():
            continue
        messages.append({"role": "user", "content": line})
        shown = [*start, messages[-1]] if reads_last_turn else messages
        reply = _answer(llm, shown, params, num_kept=len(start), quiet=args.json)
        messages.append({"role": "assistant", "content": reply})
    if args.json:
        say_json({"messages": messages})
    return 0


def _read_line() -> str | None:
    """Returns the next line, or None at the end. The prompt is shown only if input comes from a
    keyboard."""
    if sys.stdin.isatty():
        prompt(PROMPT)
    try:
        line = sys.stdin.readline()
    except UnicodeDecodeError as error:
        raise ConfigError(
            "stdin is not text", seen=error, remedy="Send UTF-8 text to stdin."
        ) from error
    return line.rstrip("\n") if line else None


def _answer(
    llm: LLM, messages: Messages, params: SamplingParams, *, num_kept: int, quiet: bool
) -> str:
    """Prints the model's next turn as it arrives and returns it. If the conversation outgrows the
    context, the oldest turns after the first `num_kept` messages are dropped, and a note says so.
    """
    while True:
        try:
            pieces = llm.stream_chat(messages, params)
            break
        except RequestError:
            if len(messages) < num_kept + 3:
                raise
            del messages[num_kept : num_kept + 2]
            tell("(the oldest turn no longer fits and is forgotten)")
    reply = ""
    for output in pieces:
        reply += output.text
        if output.error is not None:
            tell(f"paredown: {output.error}")
        if not quiet:
            say_answer(output.text)
    if not quiet:
        say()
    return reply
