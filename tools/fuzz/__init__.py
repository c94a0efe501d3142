"""Fuzzers of the readers of untrusted files (docs/internals/fuzzing.md)."""
