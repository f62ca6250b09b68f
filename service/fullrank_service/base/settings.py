"""Define the settings: name, default, description. Each is an environment variable FULLRANK_<NAME>.

They are read in create_app and in the command, never at import. docs/reference/settings.md holds the same table;
tests/docs/reference.py makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from fullrank.events.log import DAYS, MEGABYTES

PREFIX = "FULLRANK_"
# How alike, from 0 to 1, a variable and a setting must be for the variable to count as a misspelling.
_SIMILARITY = 0.6


def _redis_url(url: SecretStr) -> SecretStr:
    try:
        parts = urlsplit(url.get_secret_value())
        is_valid = parts.scheme in ("redis", "rediss", "unix")
        _ = parts.port
    except ValueError:
        is_valid = False
    if not is_valid:
        # The value stays out of the message, because a part of the password can be read as the port.
        raise ValueError(
            "must be redis://…, rediss://… or unix://…, with its special characters escaped"
        )
    return url


def _host_names(names: str) -> str:
    if any(mark in names for mark in "/:"):
        raise ValueError("must be names without scheme and port, such as shop.example")
    return names


def _postgresql_url(url: SecretStr) -> SecretStr:
    if not url.get_secret_value().startswith(("postgresql://", "postgres://")):
        # The value stays out of the message, because it may have a password.
        raise ValueError("must be postgresql://…")
    return url


class Settings(BaseSettings):
    """All that an operator can set."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, extra="ignore", frozen=True
    )

    bundles: Path = Field(
        default=Path("bundles"),
        description="folder of the bundles and of `active.json`, which records the active version",
    )
    default_model: str | None = Field(
        default=None,
        description="name of the bundle whose newest version serves until a version is activated; unset: the "
        "newest bundle of any name",
    )
    preload: bool = Field(
        default=True,
        description="at start, also load the newest version of every other bundle name",
    )
    max_loaded: int = Field(
        default=8,
        ge=3,
        description="most versions kept loaded: active ones and their predecessors, then the most recently "
        "loaded",
    )
    poll_ms: int = Field(default=50, ge=5, description="how often a worker checks for a swap")
    swap_timeout_s: float = Field(
        default=120,
        gt=0,
        description="longest time for all workers to load and verify the version of a swap",
    )
    host: str = Field(default="127.0.0.1", description="address to listen on")
    port: int = Field(default=8000, ge=0, le=65535, description="port to listen on")
    workers: int = Field(default=1, ge=1, description="worker processes")
    keys: Path | None = Field(
        default=None, description="file of the API keys; unset: `keys.json` in the bundle folder"
    )
    anonymous: str | None = Field(
        default=None,
        description="scopes of callers without an API key, such as `search,events`, or `none`; unset: "
        "`search,events` on loopback until there is a key, else `none`",
    )
    docs: bool = Field(default=True, description="serve the OpenAPI document at /openapi.json")
    rank_threads: int = Field(
        default=2, ge=1, description="threads in each worker that encode and rank"
    )
    exact_budget_ms: float = Field(
        default=25,
        gt=0,
        description="mode `auto` searches exactly as long as exact searches take at most this on average; "
        "above it, searches are fast if the bundle has a fast mode",
    )
    inline_ms: float = Field(
        default=2,
        ge=0,
        description="a worker ranks plain searches on its event loop, without a thread, as long as they take "
        "at most this on average; 0: never",
    )
    max_queue: int = Field(
        default=64,
        ge=1,
        description="most rankings, waiting and running, in a worker; further ones are answered 503, as are "
        "those that could not be answered within half of the deadline",
    )
    deadline_ms: int = Field(
        default=2_000,
        ge=1,
        description="longest time from a complete ranking request to its answer; after that the answer is 503",
    )
    body_timeout_s: float = Field(
        default=30,
        gt=0,
        description="longest wait for a request body, plus a second for every 16 KiB of it",
    )
    response_timeout_s: float = Field(
        default=30,
        gt=0,
        description="longest wait for a client to read each 64 KiB of its response",
    )
    keep_alive_s: int = Field(
        default=75,
        ge=1,
        description="how long an idle connection stays open; before its first request at most 10 seconds",
    )
    max_connections: int = Field(
        default=1_000,
        ge=1,
        description="most open connections of a worker. The longest idle ones are closed to make room; if "
        "none is idle, requests are answered 503, except /livez. A proxy in front should permit "
        "fewer",
    )
    drain_ms: int = Field(
        default=0,
        ge=0,
        description="how long a worker still accepts connections after SIGTERM, while /readyz answers 503",
    )
    rate_limit: float = Field(
        default=0,
        ge=0,
        allow_inf_nan=False,
        description="requests a second that a worker accepts from one client (an API key, or else an "
        "address); further ones are answered 429; 0: no limit",
    )
    rate_burst: int = Field(
        default=100,
        ge=1,
        description="requests that a client may send at once before the rate limit applies",
    )
    cache_entries: int = Field(
        default=4096, ge=0, description="embeddings cached in each worker; 0: none"
    )
    cache_mb: int = Field(
        default=64, ge=1, description="most megabytes of cached embeddings in each worker"
    )
    filter_cache_mb: int = Field(
        default=64, ge=0, description="megabytes of filter results cached in each worker; 0: none"
    )
    redis_url: Annotated[SecretStr, AfterValidator(_redis_url)] | None = Field(
        default=None,
        description="Redis that shares embeddings between workers, redis://… or unix://…; "
        "unset: none",
    )
    redis_min_chars: int = Field(
        default=4_000,
        ge=0,
        description="shortest text that is looked up in Redis, because encoding a shorter one takes less time",
    )
    cache_ttl_s: int = Field(default=86_400, ge=1, description="lifetime of an embedding in Redis")
    redis_timeout_ms: int = Field(default=20, ge=1, description="longest wait for Redis")
    redis_retry_ms: int = Field(
        default=5_000,
        ge=1,
        description="how long a worker makes no calls to Redis after three net failures",
    )
    max_body_bytes: int = Field(
        default=1 << 20, ge=1024, description="largest request body, except of bulk requests"
    )
    documents: Path | None = Field(
        default=None,
        description="SQLite file of live documents and rules; unset: `documents.sqlite` in the bundle folder",
    )
    documents_url: Annotated[SecretStr, AfterValidator(_postgresql_url)] | None = Field(
        default=None,
        description="PostgreSQL database for live documents and rules, in place of that file: postgresql://…;"
        " a fleet needs one to accept writes",
    )
    documents_poll_ms: int = Field(
        default=50, ge=5, description="how often a worker checks for writes of other workers"
    )
    max_document_bytes: int = Field(default=262_144, ge=1024, description="largest document")
    max_bulk_bytes: int = Field(
        default=16 << 20, ge=1024, description="largest body of a bulk request"
    )
    max_bulk_lines: int = Field(
        default=10_000, ge=1, description="most documents in one bulk request"
    )
    max_live_documents: int = Field(
        default=100_000,
        ge=1,
        description="most live documents and deletions of a bundle name before writes are refused until "
        "compaction",
    )
    max_live_mb: int = Field(
        default=512,
        ge=1,
        description="most megabytes of memory that live documents of a bundle name take in each worker, "
        "estimated for one loaded version",
    )
    min_seq_wait_ms: int = Field(
        default=1_000,
        ge=0,
        description="longest time that a search waits for the writes up to its `min_seq`",
    )
    events: bool = Field(
        default=True,
        description="`on`: log what answers show and what clients report; `off`: log nothing, and answer 404 "
        "on the paths of events",
    )
    events_folder: Path | None = Field(
        default=None,
        description="folder of the log of events; unset: `.events` beside the file of live documents",
    )
    events_key: Path | None = Field(
        default=None,
        description="file of the key that turns ids of people into pseudonyms and signs cursors. It must be "
        "outside of that folder, and is created if missing; unset: `.events.key` beside the file "
        "of live documents",
    )
    events_days: int = Field(
        default=DAYS, ge=1, description="days after which events and logged answers are removed"
    )
    events_mb: int = Field(
        default=MEGABYTES,
        ge=1,
        description="most megabytes of the log of events; above it, events are answered 507 and answers are "
        "not logged",
    )
    usage_refresh_s: int = Field(
        default=300,
        ge=1,
        description="how often a worker reads the log of events and the titles, for completions, documents "
        "clicked together and clicks on ads",
    )
    live_clicks: bool = Field(
        default=True,
        description="count new clicks in rankings within a minute, before the next training",
    )
    explore: float = Field(
        default=0,
        ge=0,
        le=0.25,
        description="share of searches in which a coin decides the order of two neighbours, and share of "
        "searches that show a document from further below; both help to learn from clicks; 0: "
        "none",
    )
    pages_mb: int = Field(
        default=256,
        ge=1,
        description="most megabytes of page texts that are kept so that a match can name a page by `page.url`"
        " only; above it the oldest are removed, those of `PUT /v1/pages` last",
    )
    ad_taxonomy: Path | None = Field(
        default=None,
        description="file of lines `id<TAB>parent`: an ad category that a page blocks or allows then includes"
        " the categories below it; unset: only the category itself",
    )
    ad_taxonomy_number: int = Field(
        default=7, ge=1, description="number of that taxonomy, as in `cattax` of OpenRTB"
    )
    allowed_hosts: Annotated[str, AfterValidator(_host_names)] | None = Field(
        default=None,
        description="host names that the `Host` of a request may have, such as `shop.example,search`, besides"
        " `localhost` and IP addresses; `*`: any; unset: any, but none while the service listens "
        "on loopback and trusts callers without a key",
    )
    cors_origins: str | None = Field(
        default=None,
        description="origins whose pages may search and report events, such as "
        "`https://shop.example,https://www.shop.example`, or `*`; unset: none",
    )
    max_query_chars: int = Field(
        default=2_000,
        ge=1,
        description="most characters of a query, before and after Unicode normalisation (NFKC)",
    )
    max_page_chars: int = Field(
        default=200_000,
        ge=1,
        description="most characters of a page text for /v1/match, counted the same way",
    )
    max_words: int = Field(
        default=50_000,
        ge=1,
        description="most words of a query or page; in scripts without spaces, most letters",
    )
    max_batch: int = Field(
        default=32, ge=1, description="most searches in a request to /v1/search:batch"
    )
    max_limit: int = Field(default=100, ge=1, description="most hits in one answer")
    max_answer_bytes: int = Field(
        default=16 << 20,
        ge=1024,
        description="largest answer with hits or a document, or of a whole batch; larger ones are answered "
        "422",
    )
    max_offset: int = Field(default=10_000, ge=0, description="largest `offset` of a search")
    metrics_folder: Path | None = Field(
        default=None,
        description="folder in which several workers share their metrics, emptied at each start; unset: a "
        "temporary one in /dev/shm",
    )
    log_level: str = Field(
        default="info",
        pattern="^(debug|info|warning|error)$",
        description="least severe level that is logged: debug, info, warning or error",
    )
    log_format: str = Field(
        default="text",
        pattern="^(text|json)$",
        description="format of the log: `text` lines or `json` objects",
    )
    tracing: bool = Field(
        default=False,
        description="send spans to an OpenTelemetry collector; needs the extra `tracing`",
    )
    log_requests: bool = Field(
        default=False, description="write a log line for each request, not only for failures"
    )

    @classmethod
    def defaults(cls) -> Settings:
        """Give the defaults, without reading the environment."""
        return cls.model_construct()


def misspelled_variables(environment: Iterable[str]) -> dict[str, str]:
    """Return the variables that look like misspelled settings, each with the setting most like it.

    Variables that resemble no setting are ignored: other programs use the prefix too.
    """
    settings = [name.upper() for name in Settings.model_fields]
    found = {}
    for variable in sorted(environment):
        if not variable.upper().startswith(PREFIX):
            continue
        name = variable.upper().removeprefix(PREFIX)
        nearest = get_close_matches(name, settings, 1, _SIMILARITY)
        if nearest and name not in settings:
            found[variable] = PREFIX + nearest[0]
    return found


def reasons(error: ValidationError, name: Callable[[str], str] = str) -> str:
    """Say for each field what is wrong with it, without its value; name: of a field, given its path."""
    found = error.errors(include_url=False, include_input=False)
    at = [".".join(map(str, item["loc"])) for item in found]
    # An error of the whole text, such as invalid JSON, names no field.
    return "; ".join(
        f"{name(path)}: {item['msg']}" if path else item["msg"]
        for path, item in zip(at, found, strict=True)
    )
