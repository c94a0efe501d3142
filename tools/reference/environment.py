"""Environment variables that the package reads, and the codes that commands end with."""

import ast
from collections.abc import Iterator

from paredown.cli.main import VERBS
from tools.reference.page import table
from tools.reference.source import called, constant, modules

# What each variable does. One without an entry ends the run.
MEANINGS = {
    "PAREDOWN_API_KEY": "key that clients of `serve` send, as a line of `--api-key-file`",
    "PAREDOWN_BITMAP": "`always` or `never` hold zeros of weights as bits; unset: where it pays",
    "PAREDOWN_CACHE": "folder for packed weights and measured machines, or `off`",
    "PAREDOWN_DATA": "folder with texts to measure and calibrate on, and traces",
    "PAREDOWN_ISA": "instruction set in place of the best one (`paredown doctor` lists them)",
    "RANK": "which of the processes this is that train one student together; `torchrun` sets it",
    "WORLD_SIZE": "how many processes train one student together; `torchrun` sets it",
    "XDG_CACHE_HOME": "cache folder of the user (default: `~/.cache`)",
}
EXIT_MEANINGS = {
    0: "all went well; `serve` was told to stop by SIGTERM or SIGHUP",
    1: "the verb ran and has a bad result (see its section below)",
    2: "bad input, bad files or a full disk; the message says what, the value seen, and what to do",
    130: "interrupted by Ctrl-C",
    141: "nobody reads the output any more",
}
VERB_MEANINGS = {
    "generate": "a request ended in an error",
    "optimize": "no candidate is within the bounds, so nothing was written but the report",
    "serve": "the engine's thread failed; the log says why",
}


def blocks() -> dict[str, str]:
    return {
        "environment variables": table(("variable", "meaning", "read by"), _variables()),
        "exit codes": table(("code", "meaning"), _exit_codes()),
        "exit code 1": table(("verb", "when it is 1"), _ones()),
    }


def _variables() -> Iterator[tuple[str, str, str]]:
    found: dict[str, set[str]] = {}
    for module, tree in modules(""):
        for node in ast.walk(tree):
            name = constant(_key(node), module)
            if isinstance(name, str):
                found.setdefault(name, set()).add(f"`{module.removeprefix('paredown.')}`")
    for name, readers in sorted(found.items()):
        if name not in MEANINGS:
            raise ValueError(f"{name} is new: say in tools/reference/environment.py what it does")
        listed = ", ".join(sorted(readers)[:2])
        yield f"`{name}`", MEANINGS[name], listed


def _key(node: ast.AST) -> ast.AST | None:
    """What is looked up in os.environ, where the node does that."""
    if isinstance(node, ast.Call) and called(node) in ("get", "getenv") and node.args:
        target = node.func
        is_environ = isinstance(target, ast.Attribute) and _is_environ(target.value)
        return node.args[0] if is_environ or called(node) == "getenv" else None
    if isinstance(node, ast.Subscript) and _is_environ(node.value):
        return node.slice if isinstance(node.ctx, ast.Load) else None
    if isinstance(node, ast.Compare) and any(map(_is_environ, node.comparators)):
        return node.left
    return None


def _is_environ(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "environ"


def _codes() -> Iterator[tuple[str, int]]:
    """Modules of the command line, with the codes that they name."""
    for module, tree in modules("cli"):
        for node in ast.iter_child_nodes(tree):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                name, value = node.targets[0].id, constant(node.value, module)
                if isinstance(value, int) and name.startswith(("EXIT_", "NOTHING_")):
                    yield module.rsplit(".", 1)[1], value


def _exit_codes() -> Iterator[tuple[str, str]]:
    for code in sorted({0, *(value for _, value in _codes())}):
        if code not in EXIT_MEANINGS:
            raise ValueError(
                f"code {code} is new: say in tools/reference/environment.py what it is"
            )
        yield str(code), EXIT_MEANINGS[code]
    yield "128 + n", "stopped by signal n: SIGTERM 143, SIGHUP 129"


def _ones() -> Iterator[tuple[str, str]]:
    for verb in sorted({name for name, value in _codes() if value == 1 and name in VERBS}):
        if verb not in VERB_MEANINGS:
            raise ValueError(f"{verb} may end with 1: say in tools/reference/environment.py when")
        yield f"`{verb}`", VERB_MEANINGS[verb]
