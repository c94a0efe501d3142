"""Checks that the peers run the same model: last-token logits on tiny random models.

    python -m benchmarks.agreement [--peers llama.cpp pytorch]

In bf16 all must agree up to rounding. Quantized, each rounds weights or activations its own way:
the correlation says how far apart they are, and weights that a peer reads wrongly bring it to zero.
"""

import argparse
import sys
from dataclasses import dataclass

import numpy as np

from benchmarks.checkpoints.cache import Variant
from benchmarks.checkpoints.shapes import CONFIGS
from benchmarks.cpu_peers import BENCH_FOLDER
from benchmarks.peers import OURS
from benchmarks.peers.child import PeerError
from benchmarks.peers.peer import LoadOptions
from benchmarks.rounds import Children, make_files
from paredown.models.config import spec_from_config

MODELS = ("tiny-llama", "tiny-qwen2")
FORMATS = ("bf16", "int8", "int4-g32")
# Longer than the original context of the tiny rotary scaling, so that its ramp matters.
NUM_TOKENS = 200
# Engines with the same arithmetic reach 0.9999; unpaired rotary rows give less than 0.9.
MIN_CORRELATION = {"bf16": 0.999, "int8": 0.99, "int4-g32": 0.8}


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """The agreement of one peer. `top` says whether the most likely token is the same."""

    correlation: float
    max_difference: float
    top: bool


def compare(children: Children, variant: Variant, peer: str) -> Agreement:
    """Compares one peer. Raises PeerError for a peer without access to logits."""
    spec = spec_from_config(CONFIGS[variant.model])
    token_ids = [7919 * (i + 1) % spec.vocab_size for i in range(NUM_TOKENS)]
    make_files(BENCH_FOLDER / "models", variant, [peer])
    found = []
    for name in (OURS, peer):
        child = children.get(name)
        options = LoadOptions(num_threads=1, num_tokens=NUM_TOKENS)
        child.call("load", BENCH_FOLDER / "models", variant, options)
        found.append(child.call("logits", token_ids))
        child.call("close")
    ours, theirs = found
    return Agreement(
        correlation=float(np.corrcoef(ours, theirs)[0, 1]),
        max_difference=float(np.abs(ours - theirs).max()),
        top=bool(ours.argmax() == theirs.argmax()),
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peers", nargs="*", default=["llama.cpp", "pytorch"])
    args = parser.parse_args()
    all_agree = True
    with Children(logs=BENCH_FOLDER / "logs") as children:
        for model in MODELS:
            for name in FORMATS:
                for peer in args.peers:
                    variant = Variant(model=model, format=name)
                    try:
                        seen = compare(children, variant, peer)
                    except PeerError as error:
                        print(f"{model} {name} {peer}: {error}")
                        continue
                    all_agree &= seen.correlation >= MIN_CORRELATION[name]
                    print(
                        f"{model} {name} {peer}: correlation {seen.correlation:.4f}, greatest "
                        f"difference {seen.max_difference:.3f}, top token "
                        f"{'the same' if seen.top else 'another'}"
                    )
    return 0 if all_agree else 1


if __name__ == "__main__":
    sys.exit(main())
