"""Call the service over HTTP. Thin: arguments and replies are those of docs/reference/http.md."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, Unpack, cast
from urllib.parse import quote

import httpx

from fullrank.errors import FullrankError
from fullrank.replies import (
    CompletionReply,
    Fields,
    Hit,
    MatchOptions,
    MatchReply,
    Rule,
    RuleFields,
    SearchOptions,
    SearchReply,
    SimilarOptions,
    TogetherHit,
    WriteReply,
)


class ServiceError(FullrankError):
    """The service refused a request, or could not be reached.

    Attributes:
        status: of HTTP; 0 if there was no answer.
        kind: the type of the problem: "urn:fullrank:problem:invalid".
    """

    def __init__(
        self,
        message: str,
        status: int = 0,
        kind: str = "",
        errors: Sequence[Mapping[str, str]] = (),
    ) -> None:
        super().__init__(message)
        self.status, self.kind, self.errors = status, kind, list(errors)


class Client:
    """A service and one pool of connections to it; threads may share it.

    Args:
        collection: bundle name; None: the default one.
        timeout_s: the longest wait for a connection, and then for each piece of the request and of the answer, seconds.
            A whole answer may take longer.

    Examples:
        >>> with Client("http://localhost:8000") as client:
        ...     client.search("copy a file", limit=1)["hits"][0]["id"]
        'common/cp'
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        collection: str | None = None,
        timeout_s: float = 10.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._prefix = (
            "/v1/" if collection is None else f"/v1/collections/{quote(collection, safe='')}/"
        )
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        try:
            self._http = httpx.Client(
                base_url=url, headers=headers, timeout=timeout_s, transport=transport
            )
        except (httpx.InvalidURL, ValueError) as error:
            raise ServiceError(f"{url}: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    # -- asking ---------------------------------------------------------------------------------

    def search(self, query: str, **options: Unpack[SearchOptions]) -> SearchReply:
        """Rank documents for a query. Raises ServiceError."""
        return cast(SearchReply, self._post("/v1/search", {"query": query, **options}))

    def search_all(self, query: str, **options: Unpack[SearchOptions]) -> Iterator[Hit]:
        """Yield the hits of all pages of a search, by cursor. Raises ServiceError.

        A document that is not written meanwhile comes once; one that is replaced may move.

        Args:
            options: those of `search` that go with a cursor; `limit` is the number of hits of a request.
        """
        asked = options.copy()
        asked["cursor"] = "*"
        while asked["cursor"] is not None:
            page = self.search(query, **asked)
            yield from page["hits"]
            asked["cursor"] = page["cursor"]

    def search_batch(self, searches: Iterable[Mapping[str, Any]]) -> list[SearchReply]:
        """Answer several searches, each {"query": …, options}, from one generation. Raises ServiceError."""
        found = self._post("/v1/search:batch", {"searches": list(searches)})
        return cast(list[SearchReply], found["answers"])

    def similar(self, id: str, **options: Unpack[SimilarOptions]) -> SearchReply:
        """Rank the other documents for one of them. Raises ServiceError."""
        found = self._get(f"/v1/documents/{quote(id, safe='')}/similar", options)
        return cast(SearchReply, found)

    def match(
        self,
        page: Mapping[str, Any],
        placements: Iterable[Mapping[str, Any]],
        **options: Unpack[MatchOptions],
    ) -> MatchReply:
        """Fill the placements of a page. Raises ServiceError."""
        body = {"page": page, "placements": list(placements), **options}
        return cast(MatchReply, self._post("/v1/match", body))

    def put_page(
        self, url: str, text: str, *, title: str = "", keywords: Sequence[str] = ()
    ) -> str:
        """Keep the text of a page, so that its address alone names it in `match`.

        Returns:
            The address without its fragment.

        Raises:
            ServiceError: it was not kept.
        """
        body = {"url": url, "title": title, "text": text, "keywords": list(keywords)}
        return str(_object(self._send("PUT", "/v1/pages", json=body))["url"])

    def complete(
        self, prefix: str, *, limit: int = 8, model: str = "default"
    ) -> list[CompletionReply]:
        """Complete what a person is typing. Raises ServiceError."""
        found = self._get("/v1/complete", {"prefix": prefix, "limit": limit, "model": model})
        return cast(list[CompletionReply], found["completions"])

    def together(
        self,
        id: str,
        *,
        limit: int = 10,
        fields: Sequence[str] | None = None,
        model: str = "default",
        min_seq: int = 0,
    ) -> list[TogetherHit]:
        """Return the documents that the same people clicked as this one. Raises ServiceError."""
        asked = {"limit": limit, "fields": fields, "model": model, "min_seq": min_seq}
        found = self._get(f"/v1/documents/{quote(id, safe='')}/together", asked)
        return cast(list[TogetherHit], found["hits"])

    def models(self) -> dict[str, Any]:
        """Return the models, the active version, and the workers. Raises ServiceError."""
        return self._get("/v1/models", {})

    # -- documents ------------------------------------------------------------------------------

    def get(self, id: str, *, model: str = "default", min_seq: int = 0) -> Fields:
        """Return the stored fields of a document. Raises ServiceError."""
        asked = {"model": model, "min_seq": min_seq}
        found = self._get(f"/v1/documents/{quote(id, safe='')}", asked)
        return cast(Fields, found["fields"])

    def put(
        self,
        id: str,
        fields: Mapping[str, Any],
        *,
        model: str = "default",
        idempotency_key: str | None = None,
    ) -> WriteReply:
        """Add or replace a document. Raises ServiceError.

        Args:
            idempotency_key: a request that is sent again with it is stored once.
        """
        return self._write("PUT", id, model, idempotency_key, fields)

    def patch(
        self,
        id: str,
        fields: Mapping[str, Any],
        *,
        model: str = "default",
        idempotency_key: str | None = None,
    ) -> WriteReply:
        """Change some fields of a document; None removes one. Arguments as for `put`. Raises ServiceError."""
        return self._write("PATCH", id, model, idempotency_key, fields)

    def delete(
        self, id: str, *, model: str = "default", idempotency_key: str | None = None
    ) -> WriteReply:
        """Delete a document. Arguments as for `put`. Raises ServiceError."""
        return self._write("DELETE", id, model, idempotency_key, None)

    def bulk(
        self,
        documents: Iterable[Mapping[str, Any]],
        *,
        model: str = "default",
        idempotency_key: str | None = None,
    ) -> list[dict[str, Any]]:
        """Write many documents, each with its "_id", and with "_delete": True to delete it.

        Returns:
            A verdict for each, in their order.

        Raises:
            ServiceError: the whole request was refused.
        """
        lines = "".join(f"{json.dumps(document)}\n" for document in documents)
        reply = self._send(
            "POST",
            "/v1/documents:bulk",
            params={"model": model},
            content=lines.encode(),
            headers={"Content-Type": "application/x-ndjson", **_once(idempotency_key)},
        )
        return [json.loads(line) for line in reply.text.splitlines()]

    # -- rules ----------------------------------------------------------------------------------

    def rules(self, *, after: str = "", limit: int = 100, model: str = "default") -> list[Rule]:
        """List the rules with ids greater than `after`, by id. Raises ServiceError."""
        found = self._get("/v1/rules", {"after": after, "limit": limit, "model": model})
        return cast(list[Rule], found["rules"])

    def get_rule(self, id: str, *, model: str = "default") -> Rule:
        """Return a rule. Raises ServiceError."""
        return cast(Rule, self._rule("GET", id, model))

    def put_rule(self, id: str, rule: RuleFields, *, model: str = "default") -> Rule:
        """Add or replace a rule. Raises ServiceError.

        Args:
            rule: its fields; "from" is a word of Python, so write {"from": …}.
        """
        return cast(Rule, self._rule("PUT", id, model, json=rule))

    def delete_rule(self, id: str, *, model: str = "default") -> None:
        """Delete a rule, if there is one. Raises ServiceError."""
        self._rule("DELETE", id, model)

    # -- events ---------------------------------------------------------------------------------

    def report(self, events: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """Report clicks and other events, in the form of User Behavior Insights. Raises ServiceError."""
        return self._post("/v1/events", {"events": list(events)})

    # -- sending --------------------------------------------------------------------------------

    def _write(
        self,
        method: str,
        id: str,
        model: str,
        idempotency_key: str | None,
        fields: Mapping[str, Any] | None,
    ) -> WriteReply:
        path, params = f"/v1/documents/{quote(id, safe='')}", {"model": model}
        body = {} if fields is None else {"json": dict(fields)}
        sent = self._send(method, path, params=params, headers=_once(idempotency_key), **body)
        return cast(WriteReply, _object(sent))

    def _rule(self, method: str, id: str, model: str, **content: Any) -> dict[str, Any]:
        path = f"/v1/rules/{quote(id, safe='')}"
        return _object(self._send(method, path, params={"model": model}, **content))

    def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return _object(self._send("POST", path, json=body))

    def _get(self, path: str, options: Mapping[str, Any]) -> dict[str, Any]:
        params = {
            name: json.dumps(value) if isinstance(value, Mapping) else value
            for name, value in options.items()
            if value is not None
        }
        return _object(self._send("GET", path, params=params))

    def _send(self, method: str, path: str, **content: Any) -> httpx.Response:
        if path != "/v1/pages":  # all collections share them
            path = path.replace("/v1/", self._prefix, 1)
        try:
            reply = self._http.request(method, path, **content)
        except httpx.HTTPError as error:
            raise ServiceError(
                f"{self._http.base_url}: {str(error) or type(error).__name__}"
            ) from error
        if reply.is_success:
            return reply
        raise _refusal(reply)


def _once(idempotency_key: str | None) -> dict[str, str]:
    return {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}


def _object(reply: httpx.Response) -> dict[str, Any]:
    try:
        found: dict[str, Any] = reply.json()
    except ValueError as error:
        raise ServiceError(f"{reply.url}: the answer is no JSON", reply.status_code) from error
    return found


def _refusal(reply: httpx.Response) -> ServiceError:
    """Make an error of a problem document, or of whatever a proxy answered in its place."""
    try:
        problem = reply.json()
        errors = problem.get("errors", [])
        reasons = "; ".join(f"{error['field']}: {error['reason']}" for error in errors)
        message = reasons or problem["detail"]
        return ServiceError(message, reply.status_code, problem["type"], errors)
    except (ValueError, KeyError, TypeError, AttributeError):
        return ServiceError(f"{reply.url}: answered {reply.status_code}", reply.status_code)
