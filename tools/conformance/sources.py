"""The public repositories that the suites come from, and which of their files a run needs.

docs/results/conformance.md says how the folder is made of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.conformance.folder_digest import folder_digest


@dataclass(frozen=True, kw_only=True)
class Source:
    """Files of a repository at a commit. `taken_from` is the repository whose copy has the commit;
    `digest` is that of the folder with these files (folder_digest)."""

    repository: str
    taken_from: str
    commit: str
    paths: tuple[str, ...]
    digest: str


SOURCES: Mapping[str, Source] = {
    "openai-python": Source(
        repository="openai/openai-python",
        taken_from="openai/openai-python",
        commit="e43b422412a9e96c9cc5192c61fffbe2d7e04836",
        paths=("src", "tests", "pyproject.toml", "LICENSE"),
        digest="2507c036c4e6fd7fef8c81db626576198d4002adb4a345f5af861ac12cd54034",
    ),
    "llama.cpp": Source(
        repository="ggml-org/llama.cpp",
        taken_from="unslothai/llama.cpp",
        commit="d32676d77426540327835040d5d3279728f0b4c8",
        paths=("tools/server/tests", "models/templates", "LICENSE"),
        digest="32f990210f17587352a2315ef43d3ff274cdeababec499b16cf5228586e98c4d",
    ),
    "vllm": Source(
        repository="vllm-project/vllm",
        taken_from="rwkv-rs/vllm-rwkv",
        commit="63fcce4de1563309ea5195ba98d0a2e1ba4f5831",
        paths=("tests/entrypoints", "tests/__init__.py", "LICENSE"),
        digest="3b4893b989f8a4e6c4c73d31fdf695249827df7851f872d11316eb0929c11749",
    ),
    "JSON-Schema-Test-Suite": Source(
        repository="json-schema-org/JSON-Schema-Test-Suite",
        taken_from="json-schema-org/JSON-Schema-Test-Suite",
        commit="44401e0c046704b476ec9d2e2fccdaee618f259d",
        paths=("tests", "remotes", "LICENSE"),
        digest="26bb1f47cc5cf9932c677d399bea7e398a240578f1fff32325ac4308608bccf6",
    ),
}


def missing(suites: Path) -> list[str]:
    """Returns the names of folders that are not there."""
    return [name for name in SOURCES if not (suites / name).is_dir()]


def changed(suites: Path) -> list[str]:
    """Returns the names of folders that hold other files than those of the commit."""
    return [
        name
        for name, source in SOURCES.items()
        if (suites / name).is_dir() and folder_digest(suites / name) != source.digest
    ]
