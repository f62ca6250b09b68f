"""Posting lists: word → slots of documents, each with an 8-bit impact.

    slots     ascending inside a word
    t̂_wd     = low_w + step_w · impact        step_w = (high_w − low_w) / 255

low and high are the smallest and the largest weight of a word among its documents. A word with equal weights is
therefore stored without error, and otherwise |s_w t_wd − s_w t̂_wd| ≤ |s_w| step_w / 2.

A word with a long list costs much to add and, if its weight is low, changes little. `plan_words` puts such words last;
a word that is never added contributes between min(0, s_w low_w) and max(0, s_w high_w).
"""

from __future__ import annotations

import numpy as np

from fullrank.kernels.index import Postings, Shortlists, read_only
from fullrank.kernels.rows import count_entries, fill_lists
from fullrank.progress import Progress, silent
from fullrank.retrieval.index.codes import made
from fullrank.storage.checks import Create
from fullrank.storage.encoding import Int32, Rows

# Between two reports of progress.
_CHUNK, _DOCUMENTS = 1 << 22, 1 << 16


def build_postings(
    documents: Rows, order: Int32, create: Create, progress: Progress = silent
) -> Postings:
    """Transpose documents → words in two passes: the first finds the limits, the second the impacts."""
    width, entries = documents.width, len(documents.indices)
    indices, values = np.asarray(documents.indices), np.asarray(documents.values)
    counts = np.zeros(width, np.int64)
    indptr, slots, impacts, limits = made(create, Postings, F=width, E=entries)
    for first in range(0, entries, _CHUNK):
        part = slice(first, first + _CHUNK)
        count_entries(indices[part], values[part], counts, np.asarray(limits))
        progress("postings", min(first + _CHUNK, entries), 2 * entries)
    np.cumsum(counts, out=indptr[1:])
    following = np.array(indptr[:-1])
    for start in range(0, len(order), _DOCUMENTS):
        stop = min(start + _DOCUMENTS, len(order))
        fill_lists(
            (np.asarray(documents.indptr), indices, values), np.asarray(order), start, stop,
            np.asarray(limits), following, np.asarray(slots), np.asarray(impacts),
        )  # fmt: skip
        progress("postings", entries + entries * stop // len(order), 2 * entries)
    return read_only(Postings(indptr, slots, impacts, limits))


# Short lists of frequent words, and a signature of each document: one bit per frequent word.
#
# A list of half of all documents is slow to read and says little. The fast mode reads only its head, the documents in
# which the word weighs most. For a document found in another way, the signature says whether the word is in it. If
# so, the estimate adds the mean contribution of the word to the documents behind the head:
#
#     rest_w = (Σ all impacts − Σ impacts read) / (documents − documents read)
#
# A word has a list here if it is in the signatures, or in more than MAX_LIST_LENGTH documents. The signatures hold
# the MAX_SIGNED_WORDS most frequent of the words that are in more than MIN_SIGNED_DOCUMENTS documents. The lists of
# all other words are short enough to be read from the postings.

MAX_LIST_LENGTH = 8192
MAX_SIGNED_WORDS = 512
MIN_SIGNED_DOCUMENTS = 1024


def build_shortlists(postings: Postings, documents: int, create: Create) -> Shortlists:
    """Build the lists and the signatures."""
    counts = np.diff(postings.indptr)
    most = np.argsort(-counts, kind="stable")[:MAX_SIGNED_WORDS]
    signed = np.sort(most[counts[most] > MIN_SIGNED_DOCUMENTS])
    listed = np.union1d(signed, np.flatnonzero(counts > MAX_LIST_LENGTH))
    kept = np.zeros(len(counts), np.int64)
    kept[listed] = np.minimum(counts[listed], MAX_LIST_LENGTH)
    sizes = shortlist_sizes(len(counts), documents, int(kept.sum()), len(signed))
    lists = Shortlists(*made(create, Shortlists, **sizes))
    indptr, slots, impacts, words, means, signatures = lists
    np.cumsum(kept, out=indptr[1:])
    for word in listed.tolist():
        every = slice(postings.indptr[word], postings.indptr[word + 1])
        at = slice(indptr[word], indptr[word + 1])
        impact = np.asarray(postings.impacts[every])
        # Weights may all be negative: order by absolute value.
        size = impact.astype(np.int16) * (1 if postings.limits[word, 1] > 0 else -1)
        order = np.argsort(-size, kind="stable")[: at.stop - at.start]
        slots[at], impacts[at] = postings.slots[every][order], impact[order]
    words[:] = signed
    for i, word in enumerate(signed.tolist()):
        every = slice(postings.indptr[word], postings.indptr[word + 1])
        means[i] = postings.impacts[every].mean(dtype=np.float64)
        signatures[postings.slots[every], i >> 3] |= np.uint8(1 << (i & 7))
    return read_only(lists)


def shortlist_sizes(width: int, documents: int, kept: int, signed: int) -> dict[str, int]:
    """Return the sizes of lists with `kept` entries, and of the signatures of `signed` words."""
    return {"F": width, "n": documents, "K": kept, "S": signed, "S/8": -(-signed // 8)}
