"""Live documents: added, replaced and deleted while a bundle serves, without touching it.

    view = View.of(bundle)                  what the bundle holds
    view = view.apply(operations)           ... and what was written since
    view.search(query, 10)                  over both, as if they were one

Operation   operation.py   one write: a document by its id, or its deletion
View        view.py        one bundle and its live documents at one position of the log; never changes
Part        part.py        some documents and how they are searched: the bundle's, or those of one segment
segments    segments.py    added documents in few immutable pieces, merged as they grow

Words that the model does not know have rows of their own: fullrank.unseen.

A request takes its View once, and its answer is wholly of that one. ``apply`` returns a new View that shares what has
not changed: it costs what the new documents cost, and now and then a merge of segments of their size.

For whom keeps the log:

    View.of(bundle, seq)    seq: the last operation that the bundle itself contains (0 where it was trained)
    view.seq                the last operation that is in it
    view.check(id, fields)  raises DocumentRefused, in words for the caller, where this bundle cannot take a document;
                            every bundle of the collection that is loaded should be asked before a write is accepted
    view.apply(operations)  in the order of seq; those up to view.seq are passed over, so replaying is harmless.
                            A document that was accepted under another model is taken as well as it goes and never
                            stops the log; where the model takes none at all (check), DocumentRefused
    view.bundle             unchanged over all of its views

For compaction:

    view.encoder            the model of the new bundle: its kind is "open", its sparse width F + R
    view.batches(size)      (documents, encoded) in ascending id order, base rows copied as they are: what
                            ``stream_bundle`` takes. Words that the model does not know stand in the R columns from F
                            on. Opened again, the bundle's model is the same OpenModel, so compacting it once more
                            keeps its width.
"""

from fullrank.live.operation import Operation
from fullrank.live.view import View

__all__ = ["Operation", "View"]
