"""The module `tests.utils` of vLLM's tests, for a Paredown server: written for this purpose, with
the names and the behaviour that the tests of its HTTP API rely on.

Options of speed, memory and vLLM's own parsers have no effect here. One that would change answers
and cannot be expressed is an error.
"""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, ClassVar, Self

import anthropic
import openai

from tools.conformance.served import ServerPool, Service
from tools.conformance.served_model import ServedModel

__all__ = ["ROCM_ENV_OVERRIDES", "ROCM_EXTRA_ARGS", "VLLM_PATH", "RemoteOpenAIServer"]

ROCM_ENV_OVERRIDES: dict[str, str] = {}
ROCM_EXTRA_ARGS: list[str] = []
VLLM_PATH = None

_TIMEOUT_S = 120.0
# Options that are followed by a value, and those that are not, without an effect on what the tests
# look at.
_WITH_VALUE = frozenset(
    {
        "--dtype",
        "--gpu-memory-utilization",
        "--load-format",
        # Tests that name an adapter are left out.
        "--lora-modules",
        "--max-cpu-loras",
        "--max-lora-rank",
        "--max-model-len",
        "--max-num-batched-tokens",
        "--max-num-seqs",
        "--max_model_len",
        "--reasoning-parser",
        "--structured-outputs-config.backend",
        "--tool-call-parser",
    }
)
_ALONE = frozenset(
    {
        "--enable-auto-tool-choice",
        "--enable-chunked-prefill",
        "--enable-lora",
        "--enable-prompt-tokens-details",
        "--enable-tokenizer-info-endpoint",
        "--enforce-eager",
        "--no-enable-prefix-caching",
    }
)


class InexpressibleError(Exception):
    """A test starts vLLM with what no option of this server says."""


class RemoteOpenAIServer:
    """A server, as a context, and clients that are set up for it."""

    DUMMY_API_KEY = "token-abc123"
    pool: ClassVar[ServerPool]

    def __init__(
        self,
        model: str,
        vllm_serve_args: Sequence[str],
        *,
        env_dict: Mapping[str, str] | None = None,
        max_wait_seconds: float | None = None,
    ) -> None:
        self.url_root = self.pool.url(_service(model, vllm_serve_args))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Lets the pool stop the server, once another one is asked for."""

    def url_for(self, *parts: str) -> str:
        return "/".join((self.url_root, *parts))

    def get_client(self, **settings: Any) -> openai.OpenAI:
        return openai.OpenAI(**self._openai_settings(settings))

    def get_async_client(self, **settings: Any) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(**self._openai_settings(settings))

    def get_async_client_anthropic(self, **settings: Any) -> anthropic.AsyncAnthropic:
        return anthropic.AsyncAnthropic(
            **{
                "base_url": self.url_root,
                "api_key": self.DUMMY_API_KEY,
                "max_retries": 0,
                "timeout": _TIMEOUT_S,
                **settings,
            }
        )

    def _openai_settings(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "base_url": self.url_for("v1"),
            "api_key": self.DUMMY_API_KEY,
            "max_retries": 0,
            "timeout": _TIMEOUT_S,
            **settings,
        }


def _service(model: str, arguments: Sequence[str]) -> Service:
    name = model
    words = iter(arguments)
    for word in words:
        if word == "--served-model-name":
            name = next(words)
        elif word in _WITH_VALUE:
            next(words)
        elif word not in _ALONE:
            raise InexpressibleError(word)
    return Service(model=ServedModel(), name=name, options=("--any-model-name",))
