"""Retrieval: scores of texts by their vectors, and indexes that are searched exactly."""

from paredown.retrieve.coil import CoilText, coil, coil_all
from paredown.retrieve.coil_index import CoilIndex
from paredown.retrieve.colbert import maxsim, maxsim_all
from paredown.retrieve.dense import cosine, dot
from paredown.retrieve.dense_index import DenseIndex
from paredown.retrieve.index_config import IndexConfig
from paredown.retrieve.model_digest import model_digest
from paredown.retrieve.opened_index import Hits
from paredown.retrieve.splade import SparseVector, splade, splade_all
from paredown.retrieve.token_index import TokenIndex
from paredown.retrieve.vectors import real_tokens

__all__ = [
    "CoilIndex",
    "CoilText",
    "DenseIndex",
    "Hits",
    "IndexConfig",
    "SparseVector",
    "TokenIndex",
    "coil",
    "coil_all",
    "cosine",
    "dot",
    "maxsim",
    "maxsim_all",
    "model_digest",
    "real_tokens",
    "splade",
    "splade_all",
]
