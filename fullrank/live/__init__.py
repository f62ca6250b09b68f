"""Live documents: added, replaced and deleted while a bundle serves, without changing the bundle.

    view = View.of(bundle)                  the bundle's documents
    view = view.apply(operations)           and the writes since
    view.search(query, 10)                  ranks both as one collection

Operation   operation.py   one write: a document by its id, or its deletion
Hits        hits.py        an answer
View        view.py        immutable: one bundle and its live documents up to one position of the log
Earlier     earlier.py     a view as of an earlier operation
Entry       entry.py        which documents a bundle can take
Part        part.py        documents that are searched together: the bundle's, or those of one segment
segments    segments.py    immutable segments of added documents: encoded, chosen for a merge, merged
ids         ids.py         rows by id
prefixes    prefixes.py    completes the last word of a query with words that only live documents have
gather      gather.py      copies documents of several parts into one
reordering  reordering.py  the second stage over documents of several parts

Words that the model does not know have rows of their own: fullrank.models.unseen.

Each request takes one View and is answered from it alone. ``apply`` returns a new View that shares all unchanged parts:
it costs the encoding of the new documents. Segments are merged apart from that, on any thread:

    merged = view.merge(view.due())     copies segments into one; the view is searched and written on meanwhile
    later = later.adopt(merged)         takes it over, without what was removed since

For the keeper of the log:

    View.of(bundle, seq)    seq: the last operation that the bundle itself contains (0 for a trained bundle)
    view.seq                the last operation in the view
    view.check(id, fields)  raises DocumentRefused if this bundle cannot accept a document. Call it on every loaded
                            bundle before a write
    view.apply(operations)  in the order of seq. Operations up to view.seq are skipped, so a replay changes nothing.
                            A document that was accepted under another model never stops the log: what this model can
                            use of it is used. Raises DocumentRefused if the model supports no live documents at all
    view.settled()          with all due merges done, for a view that does not serve yet
    view.bundle             the same for all views of a bundle

For pages of one list that are read at different times:

    view_before(view, earlier)  the view as of an earlier operation, given what later writes have replaced

For compaction:

    view.encoder            the model of the new bundle: of kind "open", with sparse width F + R
    view.batches(size)      (documents, encoded) in ascending id order, as ``stream_bundle`` takes them; rows of the
                            bundle are copied unchanged. Unseen words have the R columns from F on. The opened bundle
                            has the same OpenModel, so compacting it again keeps the width
"""

from fullrank.live.earlier import Earlier, view_before
from fullrank.live.operation import Operation
from fullrank.live.segments import Merged
from fullrank.live.view import View

__all__ = ["Earlier", "Merged", "Operation", "View", "view_before"]
