"""The engines that are measured, by name; each runs in a child process with its environment."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmarks.build import INSTALLED, Build

OURS = "paredown"


@dataclass(frozen=True, kw_only=True)
class Target:
    """`target`, "module:Class", is imported in the child alone, so that a missing package is a row,
    no crash. The child runs the driver and the package of `build`."""

    target: str
    environment: Mapping[str, str] = field(default_factory=dict)
    build: Build = INSTALLED


PEERS: Mapping[str, Target] = {
    OURS: Target(target="benchmarks.peers.paredown:ParedownPeer"),
    # GNU OpenMP's own waiting policy: its threads spin some milliseconds after a call, then sleep.
    # "passive" would slow its barriers, "active" would take the cores from whoever comes next.
    "llama.cpp": Target(target="benchmarks.peers.llama_cpp:LlamaCppPeer"),
    "openvino": Target(target="benchmarks.peers.openvino_genai:OpenVINOPeer"),
    "pytorch": Target(target="benchmarks.peers.pytorch:PyTorchPeer"),
}
MACHINE = Target(target="benchmarks.peers.machine:MachineLimits")
