"""The models that a measurement makes, each with its figures, in a folder that later runs go on
from."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

_SETTINGS = "settings.json"


@dataclass(frozen=True, kw_only=True)
class KeptModels:
    path: Path

    def model(self, name: str) -> Path:
        """Returns the folder of a model, which may not exist."""
        return self.path / name

    def figures(self, name: str, make: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
        """Returns a model's figures. Unless an earlier run finished it, `make` writes the model
        over what is there and returns them."""
        file = self.path / f"{name}.json"
        if not file.exists():
            self.path.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(make(self.model(name)), indent=2) + "\n")
        figures: dict[str, Any] = json.loads(file.read_text())
        return figures

    def part(self, name: str) -> "KeptModels":
        return KeptModels(path=self.path / name)


@contextmanager
def kept_models(path: Path | None, settings: dict[str, Any]) -> Iterator[KeptModels]:
    """Yields the models in `path`, or in a folder that is removed afterwards. Exits where the
    models there are of other settings."""
    if path is None:
        with TemporaryDirectory(prefix="paredown-") as folder:
            yield KeptModels(path=Path(folder))
        return
    path.mkdir(parents=True, exist_ok=True)
    file = path / _SETTINGS
    known = json.loads(file.read_text()) if file.exists() else settings
    if known != settings:
        raise SystemExit(f"{path} has models of other settings (saw: {known}). Give another path.")
    file.write_text(json.dumps(settings, indent=2) + "\n")
    yield KeptModels(path=path)
