"""Starts the native executor on forged packed files, in a process that may crash.

`python -m drivers.forged_start MODEL` packs a model. For each forgery it rewrites the packed file
with other blobs under the same key. A JSON line says how the start and a step ended: with the
"same" logits as before, "other" ones, or the name of an exception.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from drivers.cached_start import load
from paredown.executors.native.native_executor import NativeExecutor
from paredown.executors.protocol import SequenceSlice
from paredown.kernels import packed_file
from paredown.kernels.packed_file import Blob, PackedFile, write_packed_file

MOST = 2**63 - 1
# Sums of a size or an offset exceed 64 bits here, or a table begins before its first row.
NUMBERS = (-(2**63), -(2**40), -1, 0, 1, 2**28 + 32, 2**31, 2**62, MOST - 2**31, MOST - 2**30, MOST)
Blobs = list[Blob]


def with_fields(blob: Blob, **fields: object) -> Blob:
    return replace(blob, fields={**blob.fields, **fields})


def with_shape(blob: Blob, **fields: object) -> Blob:
    return with_fields(blob, shape={**blob.fields["shape"], **fields})


def part(blobs: Blobs, name: str) -> tuple[int, Blob]:
    return next((i, one) for i, one in enumerate(blobs) if one.fields["part"] == name)


def put(blobs: Blobs, name: str, change: Callable[[Blob], Blob]) -> Blobs:
    place, blob = part(blobs, name)
    return [*blobs[:place], change(blob), *blobs[place + 1 :]]


def table(blobs: Blobs, num_rows: int, offset: object, kind: str = "bf16") -> Blob:
    hidden = part(blobs, "linear")[1].fields["shape"]["num_columns"]
    data = np.zeros(max(num_rows, 1) * hidden * 2, np.uint8)
    return Blob(fields={"part": "positions", "kind": kind, "offset": offset}, data=data)


def forgeries(blobs: Blobs) -> Iterator[tuple[str, Blobs]]:
    for offset in NUMBERS:
        yield f"positions at {offset}", [*blobs, table(blobs, 4, offset)]
    yield "positions of no place", [*blobs, table(blobs, 4, None)]
    yield "positions of codes", [*blobs, table(blobs, 4, 0, "int4")]
    sizes = part(blobs, "linear")[1].fields["shape"]
    for name in (name for name, value in sizes.items() if type(value) is int):
        for number in NUMBERS:
            yield (
                f"{name} of {number}",
                put(blobs, "linear", lambda one, n=name, v=number: with_shape(one, **{n: v})),
            )
    odd: list[Any] = [None, "x", "\ud800", [], {}, 1.5, 2**70, True]
    for value in odd:
        for name in ("kind", "num_rows", "gated", "input_scale", "scale_kind"):
            yield (
                f"{name} of {value!r}",
                put(blobs, "linear", lambda one, n=name, v=value: with_shape(one, **{n: v})),
            )
        for name in ("role", "layer", "shape", "part", "more"):
            yield (
                f"the blob's {name} of {value!r}",
                put(blobs, "linear", lambda one, n=name, v=value: with_fields(one, **{n: v})),
            )
    for name in ("linear", "norm.weight"):
        place, blob = part(blobs, name)
        cut = Blob(fields=blob.fields, data=blob.data[:-3])
        yield f"{name} cut", [*blobs[:place], cut, *blobs[place + 1 :]]
        yield f"{name} twice", [*blobs, blob]
        yield f"{name} missing", [*blobs[:place], *blobs[place + 1 :]]
    yield "an unknown blob", [*blobs, Blob(fields={"part": "more"}, data=blobs[0].data)]
    yield "no part", [*blobs, Blob(fields={}, data=blobs[0].data)]
    yield "a bias alone", put(blobs, "norm.weight", lambda one: with_fields(one, part="norm.bias"))
    yield "gated rows", put(blobs, "linear", lambda one: with_shape(one, gated=True))
    yield "another embedding", [*blobs, with_fields(blobs[0], role="embedding")]


def bitmap_forgeries(blobs: Blobs) -> Iterator[tuple[str, Blobs]]:
    """Weights whose zeros are a bit each: counts and places that the values do not have."""
    blob = part(blobs, "linear")[1]
    shape = blob.fields["shape"]
    if shape["bitmap_bytes"] == 0:
        return
    head = 1 if shape["kind"] == "bf16_short_bitmap" else 0
    runs = -(-(shape["bitmap_bytes"] + 64) // 64) * 64
    changes: dict[str, tuple[int, bytes]] = {
        "no numbers": (head, bytes(8)),
        "all numbers": (head, b"\xff" * 64),
        "a bit more": (head, bytes([255 if blob.data[head] != 255 else 254])),
        "a run before the first": (runs, (-1).to_bytes(8, "little", signed=True)),
        "a run behind the last": (runs, (2**40).to_bytes(8, "little")),
        "a run at the end": (runs, shape["bitmap_bytes"].to_bytes(8, "little")),
        "a run of no block": (runs, (1).to_bytes(8, "little")),
    }
    if head:
        changes |= {"a wide block": (0, b"\x01"), "a block of no kind": (0, b"\x02")}
    for name, (place, data) in changes.items():
        changed = blob.data.copy()
        changed[place : place + len(data)] = np.frombuffer(data, np.uint8)
        yield f"bitmap: {name}", put(blobs, "linear", lambda one, d=changed: replace(one, data=d))
    kinds = ("int8_bitmap", "bf16_bitmap", "bf16_short_bitmap", "bf16", "bf16_short", "int8")
    for kind in kinds:
        if kind != shape["kind"]:
            yield (
                f"bitmap: {kind}",
                put(blobs, "linear", lambda one, k=kind: with_shape(one, kind=k)),
            )
    for number in (64, 63, -64, -1):
        size = shape["bitmap_bytes"] + number
        yield (
            f"bitmap: {number} bytes more",
            put(blobs, "linear", lambda one, n=size: with_shape(one, bitmap_bytes=n)),
        )


def logits(executor: NativeExecutor) -> np.ndarray:
    pages = list(range(executor.num_pages))
    return executor.step([SequenceSlice(token_ids=[5, 6, 7], start=0, pages=pages, num_logits=3)])


def main() -> None:
    folder = Path(sys.argv[1])
    expected = logits(load(folder))
    roots = (folder, Path(os.environ["XDG_CACHE_HOME"]))
    (path,) = (one for root in roots for one in root.rglob("*.packed"))
    file = PackedFile(path, packed_file._decode(np.fromfile(path, np.uint8)).key, 1)
    file.verify()
    key, sound = file._header.key, list(file.blobs())
    for name, blobs in (*forgeries(sound), *bitmap_forgeries(sound)):
        partial = path.with_suffix(".forged")
        with partial.open("w+b", buffering=0) as written:
            write_packed_file(written, key, blobs, num_threads=1, go_on=lambda: True)
        partial.chmod(0o600)
        partial.replace(path)
        # Printed first, so that the forgery is known if the process dies.
        print(json.dumps(name), end=" ", flush=True)
        try:
            found = logits(load(folder))
            print(json.dumps("same" if np.array_equal(found, expected) else "other"), flush=True)
        except Exception as error:
            print(json.dumps(type(error).__name__), flush=True)


if __name__ == "__main__":
    main()
