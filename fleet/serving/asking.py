"""Ask the shards of one set for one request, and account for those that do not answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from logging import getLogger
from typing import Any

from fleet.serving.transport import Failure, Shards
from fleet.serving.wire import Answer, Ask, NotLoaded, Question, Refused, pack, unpack_reply
from fleet.sets import SetManifest
from fullrank.errors import FilterError
from service.errors import DocumentsMissing

_log = getLogger(__name__)


class Asking:
    """The shards of a set, for one request.

    Args:
        shards: Reaches them.
        manifest: Of the set.
        deadline_s: Seconds from now on until shards that have not answered are missing.
        partial: Go on without shards that are missing; otherwise the request fails.
    """

    def __init__(
        self, shards: Shards, manifest: SetManifest, deadline_s: float, *, partial: bool = False
    ) -> None:
        self._shards, self._manifest, self._partial = shards, manifest, partial
        self._end = asyncio.get_running_loop().time() + deadline_s
        self.missing: dict[int, str] = {}
        """Why shards have not answered, by number."""

    @property
    def numbers(self) -> list[int]:
        """The shards that have documents and have always answered."""
        entries = enumerate(self._manifest.shards)
        return [n for n, entry in entries if entry.documents and n not in self.missing]

    @property
    def covered(self) -> float:
        """The share of the documents that are in shards which have always answered."""
        found = sum(self._manifest.shards[number].documents for number in self.numbers)
        return found / self._manifest.documents

    async def all(self, question: Question) -> dict[int, Any]:
        """Ask every shard the same; arguments and errors as of ``each``."""
        return await self._each(dict.fromkeys(self.numbers, self._packed(question)))

    async def each(self, questions: Mapping[int, Question]) -> dict[int, Any]:
        """Ask shards, each its own question.

        Args:
            questions: By number of the shard.

        Returns:
            The contents of the answers, by number; without shards that are missing, if the request may do without.

        Raises:
            DocumentsMissing: A shard has not answered.
            FilterError: A shard refuses the question.
        """
        return await self._each({n: self._packed(question) for n, question in questions.items()})

    def _packed(self, question: Question) -> bytes:
        return pack(Ask(self._manifest.version, self._manifest.set_id, question))

    async def _each(self, payloads: Mapping[int, bytes]) -> dict[int, Any]:
        left_s = max(0.0, self._end - asyncio.get_running_loop().time())
        outcomes = await self._shards.ask(payloads, left_s) if payloads else {}
        contents = {}
        for number in payloads:
            found = _content(outcomes[number], self._manifest.set_id)
            if isinstance(found, Failure):
                self.missing[number] = found.reason
            else:
                contents[number] = found.content
        if self.missing:
            _log.warning("%s: %s", self._manifest.version, _described(self.missing))
            if not self._partial or not self.numbers:
                raise DocumentsMissing(self._problem())
        return contents

    def _problem(self) -> str:
        numbers = ", ".join(map(str, sorted(self.missing)))
        count = len(self._manifest.shards)
        share = 1 - self.covered
        return f"No answer of shard {numbers} of {count}, which has {share:.1%} of the documents."


def _content(outcome: bytes | Failure, set_id: str) -> Answer | Failure:
    """Return an answer of the set, or why there is none. Raises FilterError."""
    if isinstance(outcome, Failure):
        return outcome
    match unpack_reply(outcome):
        case Answer() as answer if answer.set_id == set_id:
            return answer
        case Answer():
            return Failure("answers for another set of this version")
        case NotLoaded(versions):
            return Failure(f"has {', '.join(versions) or 'no version'} open")
        case Refused(path, reason):
            raise FilterError(path, reason)


def _described(missing: Mapping[int, str]) -> str:
    return "; ".join(f"shard {number}: {reason}" for number, reason in sorted(missing.items()))
