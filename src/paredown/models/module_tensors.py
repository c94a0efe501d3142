"""The tensors of one module, by the suffix after its name."""

from collections.abc import Iterator, Mapping

from paredown.formats.tensor import StoredTensor


class ModuleTensors(Mapping[str, StoredTensor]):
    """A view that takes a tensor from the files on access."""

    def __init__(
        self, tensors: Mapping[str, StoredTensor], module: str, suffixes: tuple[str, ...]
    ) -> None:
        self._tensors = tensors
        self._module = module
        self._suffixes = suffixes

    def __getitem__(self, suffix: str) -> StoredTensor:
        return self._tensors[f"{self._module}.{suffix}"]

    def __iter__(self) -> Iterator[str]:
        return iter(self._suffixes)

    def __len__(self) -> int:
        return len(self._suffixes)
