"""The documents of sets: read from their shards, and written to the log that all shards follow.

A router follows the log too, over a head without documents of the set. It checks writes against the fields of all
documents, knows the words of live ones, and knows how far a search must wait for a write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from fullrank.bundle import Bundle
from fullrank.errors import FullrankError
from fullrank.live import View
from fullrank_fleet.serving.asking import Asking, Patience
from fullrank_fleet.serving.fanout import ReplicatedShards
from fullrank_fleet.serving.head import Head, HeadView, NewFields, refusal
from fullrank_fleet.serving.wire import Read
from fullrank_service.base.errors import DocumentNotAccepted, Invalid
from fullrank_service.base.settings import Settings
from fullrank_service.documents.follow import Followed
from fullrank_service.documents.live import LiveDocuments, Stored
from fullrank_service.documents.log import Kept, Submission
from fullrank_service.documents.sqlitelog import LogPlace

# Where a fleet keeps its live documents: a log in PostgreSQL, which routers write and shards follow.


@dataclass(frozen=True, slots=True)
class LogSource:
    """The log of a fleet; its address (postgresql://…) may have a password."""

    address: str = field(repr=False)
    poll_s: float = 0.05

    @classmethod
    def of(cls, settings: Settings) -> LogSource | None:
        """Return the log of the settings; None: the fleet takes no writes."""
        if settings.documents_url is None:
            return None
        return cls(settings.documents_url.get_secret_value(), settings.documents_poll_ms / 1000)

    def place(self, partitions: range | None = None) -> LogPlace:
        """Return the place of the log, to read the documents of some partitions or of all. Raises FullrankError."""
        return LogPlace.of_database(self.address, partitions)

    @property
    def fingerprint(self) -> str:
        """A hash of the address, so that routers and shards notice if they have different logs."""
        return blake2b(self.address.encode(), digest_size=8).hexdigest()


def check_same(of_router: LogSource | None, of_shards: str | None) -> None:
    """Check that a router writes the log with the fingerprint that its shards follow. Raises FullrankError."""
    own = None if of_router is None else of_router.fingerprint
    if own != of_shards:
        raise FullrankError(
            f"FULLRANK_DOCUMENTS_URL is {_described(own)} here, and {_described(of_shards)} in the processes of this "
            "fleet: start every router with the same; to change it, stop the fleet with: fullrank fleet stop"
        )


def _described(fingerprint: str | None) -> str:
    return "unset" if fingerprint is None else f"one with the hash {fingerprint}"


class SetDocuments:
    """The documents of sets; see ``fullrank_service.documents.live``. Without ``live``, there is no log."""

    def __init__(
        self, shards: ReplicatedShards, patience: Patience, live: LiveDocuments | None
    ) -> None:
        self._shards, self._patience, self._live = shards, patience, live
        self._heads: dict[int, View] = {}

    @property
    def takes_writes(self) -> bool:
        return self._live is not None

    def prepare(self, bundle: Bundle) -> None:
        """Bring the view of a head up to date with the log, then keep following. Raises BundleError."""
        if self._live is None:
            self._heads[id(bundle)] = HeadView.of(bundle)
        else:
            self._live.prepare(bundle)

    def release(self, bundle: Bundle) -> None:
        if self._live is None:
            self._heads.pop(id(bundle), None)
        else:
            self._live.release(bundle)

    def start(self) -> None:
        if self._live is not None:
            self._live.start()

    async def close(self) -> None:
        """Store waiting writes, then stop."""
        if self._live is not None:
            await self._live.close()

    async def view(self, bundle: Bundle, min_seq: int = 0) -> View:
        """Return the view of a head once it contains all operations up to min_seq; shards will wait for them too."""
        if self._live is None:
            if min_seq:
                reason = "is larger than the number of every acknowledged write"
                raise Invalid(errors=[{"field": "min_seq", "reason": reason}])
            return self._heads.get(id(bundle)) or HeadView.of(bundle)
        view = await self._live.view(bundle, min_seq)
        assert isinstance(view, HeadView)
        return view.waiting_for(min_seq)

    async def stored(self, view: View, id: str, only: Mapping[str, Any] | None = None) -> Stored:
        """Return the stored fields of a document, as its shard has them. Raises DocumentsMissing, NotYetVisible."""
        head = view.bundle
        assert isinstance(head, Head)
        assert isinstance(view, HeadView)
        try:
            number = head.set.owner(id)
        except UnicodeEncodeError:
            return Stored(None, view.seq)
        asking = Asking(self._shards, head.set, self._patience, min_seq=view.min_seq)
        question = Read(id, only, NewFields.of(view))
        fields: dict[str, Any] | None = (await asking.each({number: question}))[number]
        return Stored(fields, asking.seqs[number])

    def views(self, name: str | None = None) -> Sequence[Followed]:
        if self._live is not None:
            return self._live.views(name)
        found = [Followed(view, 0, 0) for view in self._heads.values()]
        return [one for one in found if name in (None, one.view.bundle.name)]

    async def write(self, submission: Submission) -> Kept:
        return await self._log_of(submission.collection).write(submission)

    async def head(self, collection: str) -> int:
        return await self._log_of(collection).head(collection)

    def _log_of(self, collection: str) -> LiveDocuments:
        if self._live is None:
            raise DocumentNotAccepted(f"{refusal(collection)}.")
        return self._live
