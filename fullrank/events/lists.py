"""Served lists: what an answer showed, as a query of User Behavior Insights 1.3.

What UBI does not name stands in `query_attributes`. Places count from 0 at the first document of the list; `offset`
says how many documents stood before it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

PEOPLE = ("user_id", "client_id", "session_id")
"""Who asked: the first of these that is known counts as the person."""
MAX_TEXT_CHARS = 2_000
"""Documents and pages are queries too; of their texts so much is stored."""
_TEXTS = (*PEOPLE, "application")


@dataclass(frozen=True, slots=True)
class ServedList:
    """One answer.

    Attributes:
        query_id: Of the answer.
        at: When, in seconds since 1970.
        text: What was asked for.
        ids: The documents, in the order in which they were shown.
        kind: search, similar or match; "reported" for a list that only a client knows of.
        offset: Number of documents before the first.
        model: Version that answered; of an interleaved list, the active one.
        generation: Of the models.
        candidate: Version whose documents were interleaved, None outside of an experiment.
        teams: A letter for each place: "a" the active model's, "b" the candidate's, "-" either's. Empty without an
            experiment.
        pair: Place of the upper one of two neighbours whose order a coin decided, None if no coin was thrown.
        swapped: Whether the coin swapped them.
        inserted: Place of a document that was shown only to learn about it, None without one.
        pinned: Places of documents that a rule put there, ascending; clicks on them say nothing about a ranking.
        texts: user_id, client_id, session_id and application, where given; people as pseudonyms.
        filter, page_url: Of the request.
        is_bot: Whether the client said that it is a program.
        only_clicked: Whether `ids` has only the documents that were clicked, as the log does not say what was shown.
        model_id: Of the model that scored the ads; compaction makes a new version with the same model.
        ads: Of each ad its place in `ids`, its placement and its score.
    """

    query_id: str
    at: float
    text: str
    ids: Sequence[str]
    kind: str = "search"
    offset: int = 0
    model: str | None = None
    generation: int = 0
    candidate: str | None = None
    teams: str = ""
    pair: int | None = None
    swapped: bool = False
    inserted: int | None = None
    pinned: tuple[int, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    filter: Any = None
    page_url: str | None = None
    is_bot: bool = False
    only_clicked: bool = False
    model_id: str = ""
    ads: Sequence[tuple[int, str, float]] = ()

    @property
    def person(self) -> str | None:
        """Who asked, as a pseudonym."""
        return person(self.texts)

    @property
    def name(self) -> str:
        """The bundle name of the version that answered; "" if the list names none."""
        return "" if self.model is None else self.model.rsplit("-", 2)[0]

    def line(self) -> bytes:
        """Return the line that stores it."""
        attributes = {
            name: value
            for name in _ATTRIBUTES
            if (value := getattr(self, name)) not in (None, "", ()) and value is not False
        }
        return orjson.dumps(
            {
                "query_id": self.query_id,
                "timestamp": round(self.at * 1000),
                "user_query": self.text,
                "query_response_hit_ids": list(self.ids),
                **self.texts,
                "query_attributes": attributes,
            }
        )


_ATTRIBUTES = (
    "kind", "offset", "model", "generation", "candidate", "teams", "pair", "swapped", "inserted", "pinned",
    "filter", "page_url", "is_bot", "only_clicked", "model_id", "ads",
)  # fmt: skip


def normalised(text: str) -> str:
    """Return the form of a query that its repetitions share: NFKC, case folded, single spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def person(texts: Mapping[str, str]) -> str | None:
    """Return the first known of user, client and session."""
    return next((texts[name] for name in PEOPLE if name in texts), None)


def parse_list(line: bytes) -> ServedList:
    """Read the line of a served list. Raises ValueError, KeyError or TypeError if it is something else.

    Attributes of a newer release are ignored.
    """
    given = orjson.loads(line)
    attributes = {
        name: value for name, value in given["query_attributes"].items() if name in _ATTRIBUTES
    }
    return ServedList(
        given["query_id"],
        given["timestamp"] / 1000,
        given["user_query"],
        given["query_response_hit_ids"],
        texts={name: given[name] for name in _TEXTS if name in given},
        **attributes
        | {
            "pinned": tuple(attributes.get("pinned", ())),
            "ads": tuple(map(tuple, attributes.get("ads", ()))),
        },
    )
