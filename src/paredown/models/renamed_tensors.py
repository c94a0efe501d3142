"""Gives tensors of older files the names that a family's checkpoints have now."""

import re

from paredown.models.families.family import Family
from paredown.models.files.shards import FolderTensors


def renamed_tensors(tensors: FolderTensors, family: Family) -> FolderTensors:
    """Returns the same tensors, with the parts of their names that `Family.renamed` lists replaced.
    Nothing is copied."""
    if not family.renamed:
        return tensors
    files = []
    for file in tensors.files:
        places = {_renamed(name, family): place for name, place in file.places.items()}
        files.append(file.with_places(places) if list(places) != list(file.places) else file)
    return FolderTensors(files)


def _renamed(name: str, family: Family) -> str:
    for pattern, replacement in family.renamed:
        name = re.sub(pattern, replacement, name)
    return name
