"""The table of settings: name, default, help. Each is an environment variable FULLRANK_<NAME>.

Built in the factory, never at import. docs/operations.md holds the same table and a test keeps the
two together.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

PREFIX = "FULLRANK_"


def _of_redis(url: SecretStr) -> SecretStr:
    try:
        parts = urlsplit(url.get_secret_value())
        good = parts.scheme in ("redis", "rediss", "unix")
        _ = parts.port
    except ValueError:
        good = False
    if not good:
        # Without what was wrong: an odd password can stand where a port should.
        raise ValueError(
            "must be redis://…, rediss://… or unix://…, with what is special in it escaped"
        )
    return url


class Settings(BaseSettings):
    """Everything an operator can set."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, extra="ignore", frozen=True
    )

    bundles: Path = Field(
        default=Path("bundles"),
        description="folder of the bundles; the active version is noted in it",
    )
    default_model: str | None = Field(
        default=None,
        description="bundle name whose newest version serves while no version has been activated; "
        "unset: the newest bundle of all",
    )
    preload: bool = Field(
        default=True, description="load the newest version of every other bundle name at start"
    )
    max_loaded: int = Field(
        default=8,
        ge=3,
        description="models kept loaded; the active and the previous one always stay, "
        "then those that were loaded last by request",
    )
    poll_ms: int = Field(default=50, ge=5, description="how often a worker looks for a swap")
    swap_timeout_s: float = Field(
        default=120,
        gt=0,
        description="longest wait of a swap until every worker has loaded and verified the bundle",
    )
    host: str = Field(default="127.0.0.1", description="address to listen on")
    port: int = Field(default=8000, ge=0, le=65535, description="port to listen on")
    workers: int = Field(default=1, ge=1, description="worker processes")
    keys: Path | None = Field(
        default=None, description="file of the API keys; unset: `keys.json` in the bundles' folder"
    )
    anonymous: str | None = Field(
        default=None,
        description="scopes of callers without a key, such as `search,events`, or `none`; unset: "
        "`search,ingest,events` on loopback while there is no file of keys, else `none`",
    )
    docs: bool = Field(default=True, description="serve the OpenAPI document at /openapi.json")
    rank_threads: int = Field(
        default=2, ge=1, description="threads of a worker that encode and rank"
    )
    exact_budget_ms: float = Field(
        default=25,
        gt=0,
        description="mean time of an exact search up to which queries that leave the mode open "
        "are answered exactly; beyond it in the fast mode, where the bundle has one",
    )
    inline_ms: float = Field(
        default=2,
        ge=0,
        description="mean time of a plain search up to which a worker ranks where the request arrives, "
        "on its event loop, instead of on one of its ranking threads; 0: never",
    )
    max_queue: int = Field(
        default=64,
        ge=1,
        description="rankings waiting or running in a worker before it answers 503; fewer where "
        "they could not be answered within half of the deadline",
    )
    deadline_ms: int = Field(
        default=2_000,
        ge=1,
        description="longest time from a request that ranks to its answer; what takes longer is "
        "answered 503",
    )
    head_timeout_s: float = Field(
        default=10, gt=0, description="longest wait for the head of a request, from its first byte"
    )
    body_timeout_s: float = Field(
        default=30,
        gt=0,
        description="longest wait for the body of a request, and a second more for every 16 KiB of it",
    )
    answer_timeout_s: float = Field(
        default=30,
        gt=0,
        description="longest wait for a client to read its answer, and a second more for every 16 KiB",
    )
    keep_alive_s: float = Field(
        default=75, gt=0, description="how long an idle connection is kept open"
    )
    max_connections: int = Field(
        default=1_000,
        ge=1,
        description="connections of a worker; beyond it the longest idle one is closed for a new one",
    )
    drain_ms: int = Field(
        default=0,
        ge=0,
        description="how long a worker that was told to stop goes on as before, /readyz answering "
        "503, before it takes no more connections",
    )
    rate_limit: float = Field(
        default=0,
        ge=0,
        allow_inf_nan=False,
        description="requests a second that a worker takes from one client (a key, else an "
        "address) before it answers 429; 0: no limit",
    )
    rate_burst: int = Field(
        default=100, ge=1, description="requests that a client may make at once, rate limit or not"
    )
    cache_entries: int = Field(
        default=4096, ge=0, description="embeddings remembered in each worker; 0 turns this off"
    )
    cache_mb: int = Field(
        default=64, ge=1, description="megabytes that these embeddings take at most in each worker"
    )
    filter_cache_mb: int = Field(
        default=64,
        ge=0,
        description="megabytes of filter results remembered in each worker; 0 turns this off",
    )
    redis_url: Annotated[SecretStr, AfterValidator(_of_redis)] | None = Field(
        default=None,
        description="Redis that shares embeddings between workers, redis://… or unix://…; "
        "unset: none",
    )
    redis_gain: float = Field(
        default=2,
        ge=0,
        description="Redis is asked only for embeddings whose encoding takes this many times as "
        "long as Redis does; 0: for all",
    )
    cache_ttl_s: int = Field(default=86_400, ge=1, description="lifetime of an embedding in Redis")
    redis_timeout_ms: int = Field(
        default=20, ge=1, description="longest wait for Redis before going on without"
    )
    redis_retry_ms: int = Field(
        default=5_000,
        ge=1,
        description="how long Redis is left alone when its failures outnumber its answers by three",
    )
    max_body_bytes: int = Field(
        default=1 << 20, ge=1024, description="largest request body, but for bulk requests"
    )
    documents: Path | None = Field(
        default=None,
        description="SQLite file of live documents; unset: `documents.sqlite` in the bundles' folder",
    )
    documents_poll_ms: int = Field(
        default=50, ge=5, description="how often a worker looks for what others wrote"
    )
    max_document_bytes: int = Field(
        default=262_144, ge=1024, description="largest document of a write"
    )
    max_bulk_bytes: int = Field(
        default=16 << 20, ge=1024, description="largest body of a bulk request"
    )
    max_bulk_lines: int = Field(
        default=10_000, ge=1, description="most documents of one bulk request"
    )
    max_live_documents: int = Field(
        default=100_000,
        ge=1,
        description="most live documents and deletions of a bundle name that wait for compaction",
    )
    max_live_mb: int = Field(
        default=512, ge=1, description="most megabytes of them; each worker holds them in memory"
    )
    min_seq_wait_ms: int = Field(
        default=1_000, ge=0, description="longest wait for the writes that a request asks for"
    )
    max_query_chars: int = Field(default=2_000, ge=1, description="longest query")
    max_page_chars: int = Field(
        default=200_000, ge=1, description="longest page text for /v1/match"
    )
    max_words: int = Field(
        default=50_000,
        ge=1,
        description="most words of a query or page; of scripts without spaces, most letters",
    )
    max_batch: int = Field(default=32, ge=1, description="most searches of /v1/search:batch")
    max_limit: int = Field(default=100, ge=1, description="most hits in one answer")
    max_offset: int = Field(default=10_000, ge=0, description="deepest first hit")
    metrics_folder: Path | None = Field(
        default=None,
        description="folder where workers share what they count; unset: a new temporary one for "
        "each start with several workers",
    )
    log_level: str = Field(
        default="info", pattern="^(debug|info|warning|error)$", description="least severe log line"
    )
    log_format: str = Field(
        default="text", pattern="^(text|json)$", description="log lines for people, or JSON objects"
    )
    tracing: bool = Field(
        default=False,
        description="send spans to an OpenTelemetry collector; needs the extra `tracing`",
    )
    log_requests: bool = Field(default=False, description="a log line for each request")

    @classmethod
    def defaults(cls) -> Settings:
        """The defaults alone, whatever the environment says."""
        return cls.model_construct()
