"""compressed-tensors as a row of formats/stored/table.py."""

from paredown.formats.integer import group_columns
from paredown.formats.stored.compressed_tensors.form import encode
from paredown.formats.stored.compressed_tensors.read_section import METHOD, read_compressed_tensors
from paredown.formats.stored.compressed_tensors.write_section import check_mixture, write_section
from paredown.formats.stored.stored_format import StoredFormat
from paredown.spec.weight import WeightSpec


def check(spec: WeightSpec, shape: tuple[int, int]) -> None:
    """Raises UnsupportedError if groups do not divide the columns; the format holds anything
    else."""
    group_columns(spec, shape[1])


FORMAT = StoredFormat(
    method=METHOD,
    holds=WeightSpec,
    read=read_compressed_tensors,
    check=check,
    check_mixture=check_mixture,
    encode=encode,
    section=write_section,
    kv_field="kv_cache_scheme",
)
