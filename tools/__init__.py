"""Development programs that are not installed: training of the built-in models, drawing,
fuzzers."""
