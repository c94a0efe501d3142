"""Asking a stranger's server: the common part of teachers and rewards behind an address."""
