"""Exact search among posting lists of packed vectors (csrc/retrieve/coil_searcher.h).

Letters: Q queries, N documents, P postings, L lists, T tokens, D and C dimensions, K hits.
"""

import numpy as np
import numpy.typing as npt

from paredown.kernels import _core
from paredown.kernels.isa import chosen_isa
from paredown.kernels.vector_search import Floats, Ints, PackedVectors, VectorDType

Numbers = npt.NDArray[np.uint32]


class CoilSearch:
    """Search among postings, which must stay as they are, with the promises of `VectorSearch`.

    The vectors of a token's places in documents lie side by side: list i has
    [list_offsets[i], list_offsets[i + 1]), at least one."""

    def __init__(
        self,
        dtype: VectorDType,
        vectors: PackedVectors,
        *,
        list_offsets: Ints,
        documents_P: Numbers,
        num_documents: int,
        cls: PackedVectors | None = None,
        num_threads: int,
    ) -> None:
        """`documents_P` are those of each vector, and never fall in a list. `cls` are vectors of
        whole documents [N, C]. Raises ValueError for arrays that do not fit, after a look at every
        offset and document."""
        self.num_documents = num_documents
        self._core = _core.CoilSearch(
            chosen_isa(),
            num_threads,
            dtype,
            vectors.num_dims,
            vectors.values,
            vectors.scales if len(vectors.scales) else None,
            list_offsets,
            documents_P,
            num_documents,
            0 if cls is None else cls.num_dims,
            None if cls is None else cls.values,
            None if cls is None or not len(cls.scales) else cls.scales,
        )

    def top(
        self,
        tokens_TD: Floats,
        lists_T: Ints,
        query_offsets: Ints,
        cls_QC: Floats | None,
        num_hits: int,
    ) -> tuple[Floats, Ints]:
        """Returns the scores and numbers [Q, K] of the documents with the largest scores: the sum
        over a query's tokens of the largest dot product with a vector of the document in the
        token's list, and the dot product of CLS. K is `num_hits`, or all documents.

        Query i has tokens [query_offsets[i], query_offsets[i + 1]), maybe none; `lists_T` are the
        lists of tokens. `cls_QC` is given where documents have CLS."""
        shape = (len(query_offsets) - 1, min(num_hits, self.num_documents))
        found = np.empty(shape, np.float32), np.empty(shape, np.int64)
        self._core.top(np.ascontiguousarray(tokens_TD), lists_T, query_offsets, cls_QC, *found)
        return found
