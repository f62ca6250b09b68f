"""Live documents: added, replaced and deleted while a bundle serves, without changing the bundle.

    view = View.of(bundle)                  the bundle's documents
    view = view.apply(operations)           and the writes since
    view.search(view.analyzer.query(text), 10)      ranks both as one collection

view.py      View: immutable, one bundle and its live documents up to one position of the log; Operation: one write
             of the log
segments.py  immutable segments of added documents: encoded, chosen for a merge, merged
entry.py     which documents a bundle can take

The search itself is fullrank.search. Words that the model does not know have rows of their own: fullrank.models.unseen.

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

For compaction:

    view.encoder            the model of the new bundle: of kind "open", with sparse width F + R
    view.batches(size)      (documents, encoded) in ascending id order, as ``stream_bundle`` takes them; rows of the
                            bundle are copied unchanged. Unseen words have the R columns from F on. The opened bundle
                            has the same OpenModel, so compacting it again keeps the width
"""

from fullrank.live.segments import Merged
from fullrank.live.view import Operation, View

__all__ = ["Merged", "Operation", "View"]
