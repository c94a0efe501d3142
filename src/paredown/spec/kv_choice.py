"""The syntax in which a user says how keys and values are kept, for all layers or layer by layer.

    int8                            all layers
    int4,first2=bf16,last1=bf16     int4, but for the first two layers and the last
    int4,7=int8,10-12=bf16          but for layer 7 and layers 10 to 12 (layers count from 0)
    bf16,int4,int4,bf16             one for each layer

Later parts override earlier ones. In Python a sequence with one format per layer works too.
"""

import re
from collections.abc import Sequence
from typing import cast

from paredown.errors import ConfigError
from paredown.spec.kv import KVDType, KVDTypes, check_kv_dtype

KVChoice = str | Sequence[str]

_LAYERS = re.compile(
    r"(?P<side>first|last)(?P<count>\d{1,6})|(?P<begin>\d{1,6})(-(?P<end>\d{1,6}))?"
)
_SYNTAX = "Write int8, int4,first2=bf16,last2=bf16, int4,7=int8,10-12=bf16, or one for each layer."


def resolve_kv_choice(choice: KVChoice, num_layers: int) -> KVDTypes:
    """Returns one format if all layers have the same, else one for each layer. Raises ConfigError
    for an unknown format or a layer that does not exist."""
    parts = check_kv_choice(choice)
    plain = [part for part in parts if "=" not in part]
    is_listed = not isinstance(choice, str)
    if is_listed or len(plain) > 1:
        if not num_layers == len(plain) == len(parts):
            raise ConfigError(
                "each layer has one format of keys and values",
                seen=f"{len(parts)} formats, {num_layers} layers",
                remedy=_SYNTAX,
            )
        dtypes = plain
    else:
        dtypes = plain * num_layers
        for part in parts[1:]:
            layers, _, dtype = part.partition("=")
            for layer in _layers(layers, num_layers):
                dtypes[layer] = dtype
    resolved = tuple(cast(KVDType, dtype) for dtype in dtypes)
    return resolved[0] if len(set(resolved)) == 1 else resolved


def check_kv_choice(choice: KVChoice) -> list[str]:
    """Splits a choice into its parts and checks what can be checked without the model. Raises
    ConfigError."""
    parts = [part.strip() for part in choice.split(",")] if isinstance(choice, str) else [*choice]
    exceptions = [part for part in parts if "=" in part]
    if not parts or parts[0] in exceptions or 0 < len(exceptions) < len(parts) - 1:
        raise _wrong(choice)
    for part in parts:
        layers, separator, dtype = part.partition("=")
        if separator and _LAYERS.fullmatch(layers) is None:
            raise _wrong(choice)
        check_kv_dtype(dtype if separator else part)
    return parts


def _layers(text: str, num_layers: int) -> range:
    found = _LAYERS.fullmatch(text)
    assert found is not None
    if found["side"] is not None:
        count = int(found["count"])
        layers = range(count) if found["side"] == "first" else range(num_layers - count, num_layers)
    else:
        layers = range(int(found["begin"]), int(found["end"] or found["begin"]) + 1)
    if not layers or layers[0] < 0 or layers[-1] >= num_layers:
        raise ConfigError(
            "there are no such layers to keep keys and values for",
            seen=f"{text}, layers 0 to {num_layers - 1}",
            remedy=_SYNTAX,
        )
    return layers


def _wrong(choice: KVChoice) -> ConfigError:
    seen = choice if isinstance(choice, str) else ",".join(choice)
    return ConfigError("this does not say how keys and values are kept", seen=seen, remedy=_SYNTAX)
