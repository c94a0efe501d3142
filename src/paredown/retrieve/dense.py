"""Scores of one vector for a text: dot product and cosine (arXiv 2004.04906, section 3.2).

Letters: Q queries, N documents, D dimensions.
"""

import numpy.typing as npt

from paredown.retrieve.vectors import Floats, as_vectors, check_dims, unit_length


def dot(queries_QD: npt.ArrayLike, documents_ND: npt.ArrayLike) -> Floats:
    """Returns the dot products [Q, N]. Raises ConfigError for what is no vector and for unlike
    dimensions."""
    queries, documents = as_vectors(queries_QD, "queries"), as_vectors(documents_ND, "documents")
    check_dims(documents, queries.shape[1], "documents")
    products: Floats = queries @ documents.T
    return products


def cosine(queries_QD: npt.ArrayLike, documents_ND: npt.ArrayLike) -> Floats:
    """Returns the cosines [Q, N]; with a vector of zeros it is 0. Raises what `dot` raises."""
    queries, documents = as_vectors(queries_QD, "queries"), as_vectors(documents_ND, "documents")
    return dot(unit_length(queries), unit_length(documents))
