"""Where a fleet keeps its live documents: a log in PostgreSQL, which routers write and shards follow."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b

from fullrank.errors import FullrankError
from fullrank_service.documents.logplace import LogPlace
from fullrank_service.settings import Settings


@dataclass(frozen=True, slots=True)
class LogSource:
    """The log of a fleet.

    Attributes:
        address: postgresql://…; may have a password.
        poll_s: How often to look for new operations.
    """

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
    """Check that a router writes the log that the shards follow; of_shards: its fingerprint. Raises FullrankError."""
    own = None if of_router is None else of_router.fingerprint
    if own != of_shards:
        raise FullrankError(
            f"FULLRANK_DOCUMENTS_URL is {_described(own)} here, and {_described(of_shards)} in the processes of this "
            "fleet: start every router with the same; to change it, stop the fleet with: fullrank fleet stop"
        )


def _described(fingerprint: str | None) -> str:
    return "unset" if fingerprint is None else f"one with the hash {fingerprint}"
