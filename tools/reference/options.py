"""The options of every verb, from the parsers that read them."""

import argparse
import importlib
from collections.abc import Iterable, Iterator

from paredown.cli.main import VERBS
from tools.reference.page import item, wrapped

_LONGEST_CHOICES = 50


def blocks() -> dict[str, str]:
    return {"options": "\n\n".join(_verb(name, what) for name, what in VERBS.items())}


def _verb(name: str, what: str) -> str:
    parser = argparse.ArgumentParser(prog=f"paredown {name}", add_help=False)
    importlib.import_module(f"paredown.cli.verbs.{name}").add_arguments(parser)
    parts = [f"## {name}", f"{what[0].upper()}{what[1:]}.", f"`{_usage(parser)}`", *_groups(parser)]
    return "\n\n".join(parts)


def _usage(parser: argparse.ArgumentParser) -> str:
    words = [parser.prog]
    for action in parser._actions:
        if not action.option_strings:
            words.append(f"[{_metavar(action)}]" if action.nargs == "?" else _metavar(action))
        elif action.required:
            words.append(f"{action.option_strings[0]} {_metavar(action)}")
    return " ".join([*words, "[options]"])


def _groups(parser: argparse.ArgumentParser) -> Iterator[str]:
    """A list of the arguments without a title, then one for each title."""
    titled = parser._action_groups[2:]
    in_titled = {id(action) for group in titled for action in group._group_actions}
    others = [action for action in parser._actions if id(action) not in in_titled]
    yield _list(sorted(others, key=lambda action: bool(action.option_strings)))
    for group in titled:
        about = f": {' '.join(group.description.split())}" if group.description else ""
        yield wrapped(f"**{group.title}**{about}")
        yield _list(group._group_actions)


def _list(actions: Iterable[argparse.Action]) -> str:
    shown = (action for action in actions if action.help != argparse.SUPPRESS)
    return "\n".join(item(_option(action)) for action in shown)


def _option(action: argparse.Action) -> str:
    names = ", ".join(action.option_strings) or _metavar(action)
    value = f" {_metavar(action)}" if action.option_strings and action.nargs != 0 else ""
    notes = []
    if action.required and action.option_strings:
        notes.append("required")
    help_text = (action.help or "") % _fields(action)
    if _has_default(action) and "default" not in help_text:
        notes.append(f"default: {action.default}")
    if action.choices is not None and not _is_short(action):
        notes.append(f"one of {', '.join(map(str, action.choices))}")
    noted = f" ({'; '.join(notes)})" if notes else ""
    return f"`{names}{value}`: {help_text}{noted}" if help_text else f"`{names}{value}`{noted}"


def _fields(action: argparse.Action) -> dict[str, object]:
    return {"default": action.default, "prog": "paredown"}


def _has_default(action: argparse.Action) -> bool:
    return action.default not in (None, False, argparse.SUPPRESS, [])


def _is_short(action: argparse.Action) -> bool:
    """Whether the choices stand in the place of a value."""
    choices = "|".join(map(str, action.choices or ()))
    return action.metavar is None and 0 < len(choices) <= _LONGEST_CHOICES


def _metavar(action: argparse.Action) -> str:
    if isinstance(action.metavar, str):
        return action.metavar
    if _is_short(action):
        return "|".join(map(str, action.choices or ()))
    return action.dest.upper().replace("_", "-")
