"""openai-python's tests of the routes that are served here.

They were written for a mock server and check types: every answer must be one that the client's
strict validation takes.
"""

from collections.abc import Mapping

from tools.conformance.left_out_table import LeftOutTable
from tools.conformance.openai_python.refusal import refusal
from tools.conformance.outcome import LeftOut, Rule
from tools.conformance.served import Service
from tools.conformance.served_model import ServedModel
from tools.conformance.suite import Run, Suite

_API = "tests/api_resources"
_VARIABLE = "TEST_API_BASE_URL"
_STORED = LeftOut(rule=Rule.ROUTE, what="chat completions that are stored")
_DELETED = LeftOut(rule=Rule.ROUTE, what="deleting models")
_CANCELLED = LeftOut(rule=Rule.ROUTE, what="/responses/{id}/cancel, for the background")
_COMPACT = LeftOut(rule=Rule.ROUTE, what="/responses/compact")
_BASE64 = LeftOut(rule=Rule.CLIENT, what="base64, which its strict validation takes for wrong")
_ALL = ("method", "raw_response", "streaming_response", "path_params")
_LIST = ("method", "raw_response", "streaming_response")


def _rows(
    file: str, noun: str, methods: Mapping[str, tuple[str, ...]], why: LeftOut
) -> dict[str, LeftOut]:
    """Returns the rows of methods whose tests both classes of a file have."""
    return {
        f"{_API}/{file}::{kind}{noun}::test_{way}_{method}": why
        for kind in ("Test", "TestAsync")
        for method, ways in methods.items()
        for way in ways
    }


LEFT_OUT = LeftOutTable(
    rows={
        f"{_API}/chat/completions/test_messages.py": _STORED,
        **_rows(
            "chat/test_completions.py",
            "Completions",
            {
                "retrieve": _ALL,
                "update": _ALL,
                "list": _LIST,
                "list_with_all_params": ("method",),
                "delete": _ALL,
            },
            _STORED,
        ),
        **{
            f"{_API}/test_embeddings.py::{kind}Embeddings::test_{way}_create[{case}]": _BASE64
            for kind, cases in (("Test", ("strict",)), ("TestAsync", ("strict", "aiohttp")))
            for way in _LIST
            for case in cases
        },
        **_rows("test_models.py", "Models", {"delete": _ALL}, _DELETED),
        **_rows("test_responses.py", "Responses", {"cancel": _ALL}, _CANCELLED),
        **_rows(
            "test_responses.py",
            "Responses",
            {"compact": _LIST, "compact_with_all_params": ("method",)},
            _COMPACT,
        ),
    }
)
SUITE = Suite(
    name="openai-python",
    folder="openai-python",
    working_folder=".",
    runs=(
        Run(
            roots=(
                f"{_API}/chat",
                f"{_API}/test_completions.py",
                f"{_API}/test_models.py",
                f"{_API}/test_responses.py",
                f"{_API}/responses",
            ),
            service=Service(model=ServedModel(), name="served", options=("--any-model-name",)),
            variable=_VARIABLE,
        ),
        Run(
            roots=(f"{_API}/test_embeddings.py",),
            service=Service(
                model=ServedModel(is_encoder=True), name="served", options=("--any-model-name",)
            ),
            variable=_VARIABLE,
        ),
    ),
    left_out=LEFT_OUT,
    least_counted=60,
    least_share=1.0,
    refusal=refusal,
    arguments=("-o", "addopts=", "-o", "filterwarnings="),
    paths=("src", "."),
)
