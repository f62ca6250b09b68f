"""Ask the shards of one set for one request, and account for those that do not answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from logging import getLogger
from typing import Any
from weakref import WeakKeyDictionary

from fullrank.errors import FilterError
from fullrank_fleet.serving.fanout import Failure, ReplicatedShards
from fullrank_fleet.serving.wire import (
    Answer,
    Ask,
    Behind,
    LacksClicks,
    Question,
    Refused,
    SentClicks,
    pack,
    unpack_reply,
)
from fullrank_fleet.sets.manifest import SetManifest
from fullrank_service.base.errors import DocumentsMissing, NotYetVisible
from fullrank_service.http.admission import Slot, current_slot

# Pause before a shard that is behind is asked again.
_BEHIND_S = 0.01
# Of the time that is left: how long a request that may do without a shard waits for it, so that there is time to ask
# the others again.
_SHARE_OF_ONE_CALL = 0.75
_log = getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a request waits for shards.

    Attributes:
        deadline_s: Until a shard that has not answered is missing.
        visible_s: Until a shard must have read the operations of the log that the request asks for.
    """

    deadline_s: float
    visible_s: float = 2.0


@dataclass(frozen=True, slots=True)
class _Course:
    """What the rankings of one HTTP request have in common: when they end, and why shards have not answered, by set."""

    end: float
    visible_end: float
    missing: dict[str, dict[int, str]]

    @classmethod
    def of(cls, patience: Patience) -> _Course:
        """Return that of the request that this task ranks, which begins with its first ranking."""
        now, slot = asyncio.get_running_loop().time(), current_slot()
        new = cls(now + patience.deadline_s, now + patience.visible_s, {})
        return new if slot is None else _COURSES.setdefault(slot, new)


_COURSES: WeakKeyDictionary[Slot, _Course] = WeakKeyDictionary()


class Asking:
    """The shards of a set, for one ranking.

    Args:
        patience: How long the HTTP request waits for them, from its first ranking on.
        partial: Go on without shards that are missing, and wait less long for them; otherwise the request fails.
        min_seq: Operation of the log that answers must contain.
        clicks: That the set has not learned.
    """

    def __init__(
        self,
        shards: ReplicatedShards,
        manifest: SetManifest,
        patience: Patience,
        *,
        partial: bool = False,
        min_seq: int = 0,
        clicks: SentClicks | None = None,
    ) -> None:
        self._shards, self._manifest, self._partial = shards, manifest, partial
        self._min_seq, self._clicks = min_seq, clicks
        course = _Course.of(patience)
        self._end, self._visible_end = course.end, course.visible_end
        self.missing = course.missing.setdefault(manifest.set_id, {})
        """Why shards have not answered, by number; the later rankings of a request do without these, too."""
        self.seqs: dict[int, int] = {}
        """The last operation that the answer of a shard contained, by number; a later answer contains it too."""

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
        return await self.each(dict.fromkeys(self.numbers, question))

    async def each(self, questions: Mapping[int, Question]) -> dict[int, Any]:
        """Ask shards, each its own question; return the contents of the answers, without missing shards if it may do
        without.

        Raises:
            DocumentsMissing: A shard has not answered.
            NotYetVisible: A shard has not read the log so far in time.
            FilterError: A shard refuses the question.
        """
        clicks = None if self._clicks is None else self._clicks._replace(popular=None)
        payloads, contents = self._packed(questions, clicks), dict[int, Any]()
        while payloads:
            left_s = max(0.0, self._end - self._now)
            wait_s = _SHARE_OF_ONE_CALL * left_s if self._partial else left_s
            outcomes = await self._shards.ask(payloads, wait_s)
            behind, lacking = {}, {}
            for number, payload in payloads.items():
                found = _content(outcomes[number], self._manifest.set_id)
                match found:
                    case Failure(reason):
                        self.missing[number] = reason
                    case Behind():
                        behind[number] = payload
                    case LacksClicks():
                        lacking[number] = questions[number]
                    case Answer():
                        contents[number], self.seqs[number] = found.content, found.seq
            payloads = behind | self._packed(lacking, self._clicks)
            if behind and self._now >= min(self._visible_end, self._end):
                raise NotYetVisible(f"Operation {self._min_seq} is not visible in every shard yet.")
            if behind:
                # It reads the log now: encoding a document takes about as long.
                await asyncio.sleep(_BEHIND_S)
        if self.missing:
            _log.warning("%s: %s", self._manifest.version, _described(self.missing))
            if not self._partial or not self.numbers:
                raise DocumentsMissing(self._problem())
        return contents

    @property
    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _packed(
        self, questions: Mapping[int, Question], clicks: SentClicks | None
    ) -> dict[int, bytes]:
        """Pack questions; one that goes to many shards is packed once."""
        manifest, packed = self._manifest, dict[tuple[int, int], bytes]()
        payloads = {}
        for number, question in questions.items():
            key = id(question), max(self._min_seq, self.seqs.get(number, 0))
            if key not in packed:
                ask = Ask(manifest.version, manifest.set_id, question, key[1], clicks)
                packed[key] = pack(ask)
            payloads[number] = packed[key]
        return payloads

    def _problem(self) -> str:
        numbers = ", ".join(map(str, sorted(self.missing)))
        count = len(self._manifest.shards)
        share = 1 - self.covered
        return f"No answer of shard {numbers} of {count}, which has {share:.1%} of the documents."


def _content(outcome: bytes | Failure, set_id: str) -> Answer | Behind | LacksClicks | Failure:
    if isinstance(outcome, Failure):
        return outcome
    match unpack_reply(outcome):
        case Answer() as answer if answer.set_id == set_id:
            return answer
        case Answer():
            return Failure("answers for another set of this version")
        case (Behind() | LacksClicks()) as unready:
            return unready
        case Refused(path, reason):
            raise FilterError(path, reason)


def _described(missing: Mapping[int, str]) -> str:
    return "; ".join(f"shard {number}: {reason}" for number, reason in sorted(missing.items()))
