"""Device: what a model is computed on."""

from typing import Literal

Device = Literal["cpu", "cuda"]
