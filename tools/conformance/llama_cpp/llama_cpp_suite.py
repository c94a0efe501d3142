"""llama.cpp's tests of its server, with our module in place of the one that starts llama-server."""

from tools.conformance.llama_cpp.left_out import LEFT_OUT
from tools.conformance.suite import Run, Suite

SUITE = Suite(
    name="llama.cpp",
    folder="llama.cpp/tools/server/tests",
    working_folder=".",
    runs=(Run(roots=("unit",)),),
    left_out=LEFT_OUT,
    least_counted=60,
    least_share=0.9,
    stand_ins="tools.conformance.llama_cpp.stand_ins",
)
