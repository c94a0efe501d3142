"""The suites of pytest tests, by name."""

from collections.abc import Mapping

from tools.conformance.llama_cpp import llama_cpp_suite
from tools.conformance.openai_python import openai_suite
from tools.conformance.suite import Suite
from tools.conformance.vllm import vllm_suite

SUITES: Mapping[str, Suite] = {
    suite.name: suite for suite in (openai_suite.SUITE, llama_cpp_suite.SUITE, vllm_suite.SUITE)
}
