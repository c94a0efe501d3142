"""Stand-ins for what vLLM's HTTP tests import of vLLM itself.

A few names are served: the tokenizer of the model, its vocabulary, the platform. All others can be
imported, and fail when a test uses them: such a test looks at vLLM's own modules.
"""

import base64
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import huggingface_hub
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from tools.conformance.served_model import ServedModel
from tools.conformance.work import Work

_PACKAGE = "vllm"


class OwnModuleError(Exception):
    """A test uses a module of vLLM itself."""


class OwnName:
    """A name of vLLM that can be imported and not used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *arguments: Any, **settings: Any) -> Any:
        raise OwnModuleError(self._name)


class ModelConfig:
    """The one thing that tests ask a model's settings: how large its vocabulary is."""

    def __init__(self, **settings: Any) -> None:
        """Every setting is that of the served model."""

    def get_vocab_size(self) -> int:
        return len(get_tokenizer())


class Platform:
    """The processor that tests ask about."""

    def is_rocm(self) -> bool:
        return False


def get_tokenizer(tokenizer_name: str = "", **settings: Any) -> PreTrainedTokenizerFast:
    """Returns the tokenizer of the model that is served, whatever name is asked for."""
    tokenizer = AutoTokenizer.from_pretrained(ServedModel().folder(Work.found().folder))
    assert isinstance(tokenizer, PreTrainedTokenizerFast)
    return tokenizer


SERVED: Mapping[str, Mapping[str, Any]] = {
    "vllm.config": {"ModelConfig": ModelConfig},
    "vllm.platforms": {"current_platform": Platform()},
    "vllm.tokenizers": {"get_tokenizer": get_tokenizer},
}


class OwnModule(ModuleType):
    """A module of vLLM: what is served, and names that cannot be used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        own = OwnName(f"{self.__name__}.{name}")
        return SERVED.get(self.__name__, {}).get(name, own)


class OwnModules(MetaPathFinder, Loader):
    """Finds every module of vLLM."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] != _PACKAGE:
            return None
        return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return OwnModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""


def no_download(**settings: Any) -> str:
    """Stands in for the download of LoRA adapters; the tests that use one are left out."""
    return "no-adapter"


def install() -> None:
    """Puts the stand-ins in place, for this process."""
    sys.meta_path.insert(0, OwnModules())
    vars(huggingface_hub)["snapshot_download"] = no_download
    sys.modules["pybase64"] = base64
