"""The modules in place of llama.cpp's own."""

from collections.abc import Mapping
from types import ModuleType

from tools.conformance.llama_cpp import server_process
from tools.conformance.served import ServerPool


def stand_ins(pool: ServerPool) -> Mapping[str, ModuleType]:
    server_process.ServerProcess.pool = pool
    return {"utils": server_process}
