"""The options of chats: how the model writes calls, and which texts are only text."""

import argparse
from dataclasses import replace

from paredown.cli.printed import tell
from paredown.errors import CapacityError, CheckpointError, RequestError
from paredown.models.chat.described import described
from paredown.models.chat.named_formats import NAMED_FORMATS
from paredown.models.chat.rendered_chat import EVERYTHING, TOOL_RESULTS
from paredown.models.text.tokenizer import Tokenizer

NO_FORMAT = "none"


def add_chat_format_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("chats (docs/guide/tools.md)")
    group.add_argument(
        "--tool-format",
        choices=[*NAMED_FORMATS, NO_FORMAT],
        help="how the model writes calls of tools (default: found in its chat template)",
        metavar="NAME",
    )
    group.add_argument(
        "--no-special-in-text",
        action="store_true",
        help="read control tokens in all that clients write as ordinary text (default: in results "
        "of tools only)",
    )


def prepare_chat(args: argparse.Namespace, tokenizer: Tokenizer) -> None:
    """Finds how the model writes its turns and tells it. A fault of a template stops chats alone,
    which tell it again."""
    tokenizer.text_of = EVERYTHING if args.no_special_in_text else TOOL_RESULTS
    if not tokenizer.has_chat_template:
        return
    try:
        form = tokenizer.turn_format
    except (CapacityError, CheckpointError, RequestError) as error:
        tell(f"chats cannot be rendered: {error}")
        return
    if args.tool_format is not None:
        form = replace(form, tool_format=NAMED_FORMATS.get(args.tool_format))
        tokenizer.turn_format = form
    tokenizer.show(form.markers)
    for line in described(form):
        tell(line)
