"""vLLM's tests of its OpenAI-compatible server, with our module in place of the one that starts
`vllm serve`."""

from tools.conformance.suite import Run, Suite
from tools.conformance.vllm.left_out import LEFT_OUT

SUITE = Suite(
    name="vllm",
    folder="vllm",
    working_folder=".",
    runs=(Run(roots=("tests/entrypoints/openai",)),),
    left_out=LEFT_OUT,
    least_counted=60,
    least_share=0.85,
    stand_ins="tools.conformance.vllm.stand_ins",
    # Above lies a conftest that imports vLLM.
    arguments=("--confcutdir=tests/entrypoints", "--asyncio-mode=strict"),
    paths=(".",),
)
