"""NotSupportedError: what is wrong with a part of a grammar, on its way to a GrammarError."""


class NotSupportedError(Exception):
    """A part of a grammar is wrong or not supported; the message names it and says where."""
