"""The documents of sets, read from their shards. They cannot be written yet: that needs a log that shards share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Never

from fleet.partitions import partition_of, shard_of
from fleet.serving.asking import Asking
from fleet.serving.head import Head, HeadView, refusal
from fleet.serving.transport import Shards
from fleet.serving.wire import Read
from fullrank.bundle import Bundle
from fullrank.live import View
from service.documents.follow import Followed
from service.documents.submission import Submission
from service.errors import DocumentNotAccepted, Invalid


class SetDocuments:
    """Reads documents of sets; see ``service.documents.documents``.

    Args:
        shards: Reaches the shards of a set.
        deadline_s: Seconds until a shard that has not answered is missing.
        loaded: Returns the loaded models, by version.
    """

    def __init__(
        self, shards: Shards, deadline_s: float, loaded: Callable[[], Mapping[str, Bundle]]
    ) -> None:
        self._shards, self._deadline_s, self._loaded = shards, deadline_s, loaded
        self._views: dict[str, View] = {}

    def start(self) -> None:
        """Nothing follows a log."""

    async def close(self) -> None:
        """Nothing waits to be written."""

    async def view(self, bundle: Bundle, min_seq: int = 0) -> View:
        """Return the view of the head of a set, which has no documents. Raises Invalid: no write was acknowledged."""
        if min_seq:
            reason = "is larger than the number of every acknowledged write"
            raise Invalid(errors=[{"field": "min_seq", "reason": reason}])
        return self._view(bundle)

    async def fields(self, view: View, id: str) -> dict[str, Any]:
        """Return the stored fields of a document.

        Raises:
            KeyError: No shard has such a document.
            DocumentsMissing: The shard of the document does not answer.
        """
        head = view.bundle
        assert isinstance(head, Head)
        try:
            number = shard_of(partition_of(id), head.set.runs)
        except UnicodeEncodeError:
            raise KeyError(id) from None
        if not head.set.shards[number].documents:
            raise KeyError(id)
        asking = Asking(self._shards, head.set, self._deadline_s)
        found: dict[str, Any] | None = (await asking.each({number: Read(id)}))[number]
        if found is None:
            raise KeyError(id)
        return found

    def views(self, name: str | None = None) -> Sequence[Followed]:
        """Return the views of the heads of a collection, or of all."""
        found = [self._view(bundle) for bundle in self._loaded().values()]
        return [Followed(view, 0, 0) for view in found if name in (None, view.bundle.name)]

    async def write(self, submission: Submission) -> Never:
        """Refuse a write."""
        raise _refusal(submission.collection)

    async def head(self, collection: str) -> Never:
        """Refuse to look for the last write."""
        raise _refusal(collection)

    async def written_after(self, collection: str, seq: int) -> Sequence[str]:
        """Return no id: documents of a set are not written."""
        return ()

    def _view(self, bundle: Bundle) -> View:
        found = self._views.get(bundle.version)
        if found is None or found.bundle is not bundle:
            found = HeadView.of(bundle)
            loaded = self._loaded()
            self._views = {v: view for v, view in self._views.items() if v in loaded}
            self._views[bundle.version] = found
        return found


def _refusal(collection: str) -> DocumentNotAccepted:
    return DocumentNotAccepted(f"{refusal(collection)}.")
