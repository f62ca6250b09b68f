"""What set.json records of the documents, so that a router can start while a shard is down."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fullrank.bundle import Bundle
from fullrank.filters.columns.times import parse_time


@dataclass(frozen=True, slots=True)
class Facts:
    """About the documents of one shard, or of all.

    Attributes:
        columns: Kinds of the values of each stored field, or why it cannot be filtered by:
            name → ["number"] or {"refused": reason}.
        time_fields: Text fields with a time among their values, sorted.
        has_ads: Whether a document has an ad.
        values: How many different values each stored field has; for all shards the sum, so at most so many.
    """

    columns: Mapping[str, Any]
    time_fields: Sequence[str]
    has_ads: bool
    values: Mapping[str, int]

    @classmethod
    def of(cls, bundle: Bundle) -> Facts:
        """Return those of a bundle."""
        columns: dict[str, Any] = {}
        for field in (bundle.manifest.columns or {}).get("fields", ()):
            refused = field.get("refused")
            columns[field["name"]] = (
                sorted(field["parts"]) if refused is None else {"refused": refused}
            )
        times = (
            name
            for name, column in bundle.columns.by_name.items()
            if "keyword" in column.parts
            and any(parse_time(text) is not None for text in column.parts["keyword"].values)
        )
        values = {name: bundle.distinct_values(name) for name in bundle.columns.by_name}
        return cls(columns, sorted(times), bundle.ads is not None, values)

    @classmethod
    def parse(cls, content: bytes) -> Facts:
        """Read what ``dump`` returned."""
        return cls(**json.loads(content))

    def dump(self) -> bytes:
        """Return the facts as JSON."""
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def merged(shards: Sequence[Facts]) -> Facts:
        """Return the facts of all shards; a field that one shard refuses is refused."""
        columns: dict[str, Any] = {}
        for facts in shards:
            for name, kinds in facts.columns.items():
                before = columns.get(name, [])
                if isinstance(before, dict):
                    continue
                columns[name] = kinds if isinstance(kinds, dict) else sorted({*before, *kinds})
        times = {name for facts in shards for name in facts.time_fields}
        has_ads = any(facts.has_ads for facts in shards)
        values: Counter[str] = Counter()
        for facts in shards:
            values.update(facts.values)
        return Facts(dict(sorted(columns.items())), sorted(times), has_ads, dict(values))
