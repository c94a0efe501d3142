"""ReadFields: fields that record which of them were read."""

from collections.abc import Iterator, Mapping

# Suffix of an object whose fields all count as read.
_ALL = ".*"


class ReadFields(Mapping[str, object]):
    """The fields of an object and of nested objects, whose names follow the outer one's:
    "rope_parameters.factor". `changes` replace fields; reading a replaced field is not recorded."""

    def __init__(
        self,
        values: Mapping[str, object],
        read: set[str] | None = None,
        prefix: str = "",
        changes: Mapping[str, object] | None = None,
    ) -> None:
        self._values = values
        self._read = set() if read is None else read
        self._prefix = prefix
        self._changes = changes or {}

    def __getitem__(self, key: str) -> object:
        if key in self._changes:
            return self._changes[key]
        value = self._values[key]
        full = self._prefix + key
        self._read.add(full)
        return ReadFields(value, self._read, f"{full}.") if isinstance(value, Mapping) else value

    def __iter__(self) -> Iterator[str]:
        yield from self._changes
        yield from (key for key in self._values if key not in self._changes)

    def __len__(self) -> int:
        return len(self._values.keys() | self._changes.keys())

    def __repr__(self) -> str:
        return repr({**self._values, **self._changes})

    def overlaid(self, changes: Mapping[str, object]) -> "ReadFields":
        """Returns the same fields with some replaced; what is read of the result is recorded
        here."""
        return ReadFields(self._values, self._read, self._prefix, {**self._changes, **changes})

    def plain(self) -> Mapping[str, object]:
        """Returns the fields without recording reads."""
        return self._values

    def objects(self) -> list[str]:
        """Returns the names of the fields that are objects, without recording a read."""
        return [
            key
            for key in self
            if isinstance(self._changes.get(key, self._values.get(key)), Mapping)
        ]

    def pass_over(self, key: str) -> None:
        """Counts a field as read with all its contents, if it exists."""
        full = self._prefix + key
        self._read |= {full, full + _ALL}

    def unread(self) -> dict[str, object]:
        """Returns the fields that were never read, by their full names. An object of which nothing
        was read is one field."""
        return dict(self._unread(self._values, self._prefix))

    def _unread(self, values: Mapping[str, object], prefix: str) -> Iterator[tuple[str, object]]:
        for key, value in values.items():
            full = prefix + key
            if full not in self._read:
                yield full, value
            elif isinstance(value, Mapping) and full + _ALL not in self._read:
                yield from self._unread(value, f"{full}.")
