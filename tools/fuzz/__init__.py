"""Fuzzers of what reads files of strangers (docs/internals/fuzzing.md)."""
