"""Checks the fields of a packed blob from a file before the core sees them."""

from collections.abc import Mapping
from typing import Any

# The core counts with 64-bit signed integers.
_INTEGERS = range(-(2**63), 2**63)


def blob_fields(fields: Mapping[str, object], types: Mapping[str, type]) -> dict[str, Any]:
    """Returns the fields, which must be exactly those of `types`. Raises ValueError for a field
    that is missing, unknown or of another type, for an integer beyond 64 bits, and for a text that
    is no name."""
    if fields.keys() != types.keys():
        raise ValueError(f"a blob has the fields {sorted(fields)}, not {sorted(types)}")
    for name, kind in types.items():
        value = fields[name]
        if type(value) is not kind:
            raise ValueError(f"the field {name!r} of a blob is no {kind.__name__}")
        if isinstance(value, int) and value not in _INTEGERS:
            raise ValueError(f"the field {name!r} of a blob has more than 64 bits")
        if isinstance(value, str) and not value.isascii():
            raise ValueError(f"the field {name!r} of a blob is no name")
    return dict(fields)
