"""The fields of a packed blob, as a file has them: checked before the core sees one."""

from collections.abc import Mapping
from typing import Any

# What the core counts with.
_INTEGERS = range(-(2**63), 2**63)


def blob_fields(fields: Mapping[str, object], types: Mapping[str, type]) -> dict[str, Any]:
    """The fields, which are those of `types` and no others. Raises ValueError for one that is
    missing, unknown, of another type, an integer beyond 64 bits or a text that is no name."""
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
