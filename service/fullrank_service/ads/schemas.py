"""Define the request and the reply of /v1/match; the rules about ads have the names of OpenRTB 2.6."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from fullrank_service.ads.pages import address
from fullrank_service.completion.calibrations import MIN_CLICKS
from fullrank_service.documents.ad import DEFAULT_CURRENCY, DEFAULT_TAXONOMY, Currency, domains
from fullrank_service.http.schemas import MAX_FIELDS, FilterJson, Id, MinSeq, ModelName
from fullrank_service.http.strict import (
    FieldName,
    Reply,
    Request,
    Text,
    encodable,
    longest,
    refusal,
)
from fullrank_service.search.schemas import Asked, AskerText

MAX_PLACEMENTS = 16
MAX_PER_PLACEMENT = 64
MAX_BLOCKED = 10_000


def _encodable(texts: list[str]) -> list[str]:
    # Once for the list: a call for each text would take most of the time of reading it.
    encodable("".join(texts))
    return texts


_Code = Annotated[str, Field(min_length=1, max_length=256)]
_Codes = Annotated[list[_Code], AfterValidator(_encodable), Field(max_length=MAX_BLOCKED)]


class Page(Request):
    """The page that shows the placements.

    Give at least one of title, text and keywords, or the url of a page whose text is known. Blank text is no text.
    Nothing is fetched.
    """

    url: Text = Field(default="", max_length=4096)
    title: Annotated[Text, longest(4096)] = Field(default="", max_length=4096)
    text: Text = ""
    keywords: list[Annotated[Text, longest(256), Field(max_length=256)]] = Field([], max_length=256)

    @property
    def has_text(self) -> bool:
        """Whether there is more than white space to read."""
        return any(not part.isspace() for part in (self.title, self.text, *self.keywords) if part)

    @model_validator(mode="after")
    def _check(self) -> Page:
        if self.url and not address(self.url).strip():
            raise refusal("names no page: it is blank without its fragment", "url")
        if not self.url and not self.has_text:
            raise refusal("is empty: give a title, a text, keywords, or the url of a known page")
        return self


class KnownPage(Page):
    """A page whose text is kept, so that its URL alone names it."""

    url: Text = Field(min_length=1, max_length=4096)
    text: Text = Field(min_length=1)

    @model_validator(mode="after")
    def _check_text(self) -> KnownPage:
        if self.text.isspace():
            raise refusal("is blank", "text")
        return self


class PageReply(Reply):
    url: str = Field(description="without its fragment")


class Placement(Request):
    id: Id
    count: Annotated[int, Field(ge=1, le=MAX_PER_PLACEMENT)] = 1
    bidfloor: float | None = Field(default=None, ge=0, description="least price of an ad")
    bidfloorcur: Currency | None = Field(
        default=None,
        description=f"currency of bidfloor, that of `cur` or else {DEFAULT_CURRENCY} if absent; ads in another one "
        "are left out",
    )
    min_score: float | None = Field(default=None, description="least score of a document")


class User(Request):
    id: Annotated[AskerText, Field(min_length=1)]


class MatchRequest(Request, Asked):
    page: Page
    placements: list[Placement] = Field(min_length=1, max_length=MAX_PLACEMENTS)
    blocked_ids: list[Id] = Field(
        default=[], max_length=MAX_BLOCKED, description="documents not to place"
    )
    targeting: FilterJson | None = Field(
        default=None, description="a filter: place only documents that match"
    )
    bcat: _Codes | None = Field(default=None, description="blocked categories of ads")
    acat: Annotated[_Codes, Field(min_length=1)] | None = Field(
        default=None, description="the only allowed categories of ads"
    )
    cattax: Annotated[int, Field(ge=1)] = Field(
        default=DEFAULT_TAXONOMY, description="taxonomy of bcat and acat, numbered as in OpenRTB"
    )
    badv: Annotated[_Codes, AfterValidator(domains)] = Field(
        default=[], description="blocked domains of advertisers, with the domains below them"
    )
    wseat: Annotated[_Codes, Field(min_length=1)] | None = Field(
        default=None, description="the only allowed seats of ads"
    )
    bseat: _Codes | None = Field(default=None, description="blocked seats of ads")
    battr: Annotated[list[Annotated[int, Field(ge=1)]], Field(max_length=MAX_BLOCKED)] = Field(
        default=[], description="blocked attributes of ads"
    )
    per_advertiser: Annotated[int, Field(ge=1)] = Field(
        default=1, description="most ads of one advertiser on the page"
    )
    rank: Literal["relevance", "value"] = Field(
        default="relevance",
        description="what comes first: the best score, or the largest price × probability of a click; the second "
        f"needs {MIN_CLICKS:,} clicks in the log on ads that this model placed, else 409",
    )
    cur: Currency | None = Field(
        default=None,
        description="the only allowed currency of ads; absent: any, or "
        f"{DEFAULT_CURRENCY} if ads are ranked by value",
    )
    user: User | None = Field(
        default=None, description="the person who sees the page; its id is logged as `user_id`"
    )
    fields: list[FieldName] | None = Field(
        default=None, max_length=MAX_FIELDS, description="stored fields to return; absent: all"
    )
    explain: bool = Field(
        default=False,
        description="split each score into its parts and words, and count the ads left out",
    )
    model: ModelName = "default"
    min_seq: MinSeq = 0

    @model_validator(mode="after")
    def _check(self) -> MatchRequest:
        for one, other in (("bcat", "acat"), ("wseat", "bseat")):
            if getattr(self, one) is not None and getattr(self, other) is not None:
                raise refusal(f"cannot be given with {one}: give one of them", other)
        if self.rank == "value" and self.cur is None:
            self.cur = DEFAULT_CURRENCY
        for number, placement in enumerate(self.placements):
            if self.cur is not None and placement.bidfloorcur not in (None, self.cur):
                reason = f"is not cur, {self.cur}: no ad has both currencies"
                raise refusal(reason, "placements", number, "bidfloorcur")
        if self.user is not None and self.user_id not in (None, self.user.id):
            raise refusal("is not user_id: give one of them", "user", "id")
        if self.user is not None:
            self.user_id = self.user.id
        return self
