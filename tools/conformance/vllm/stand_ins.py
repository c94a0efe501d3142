"""The modules in place of vLLM's own."""

from collections.abc import Mapping
from types import ModuleType

from tools.conformance.served import ServerPool
from tools.conformance.vllm import own_modules, remote_server


def stand_ins(pool: ServerPool) -> Mapping[str, ModuleType]:
    remote_server.RemoteOpenAIServer.pool = pool
    own_modules.install()
    return {"tests.utils": remote_server}
