"""What set.json records of the documents, so that a router can start while a shard is down."""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple, get_args

from fullrank.bundle import Bundle
from fullrank.filters.columns import Column, Kind
from fullrank.filters.columns.table import ColumnPart, time_of
from fullrank_service.documents.ad import read_ads
from fullrank_service.models.outline import (
    FieldOutline,
    Outline,
    bounds_of,
    chosen_examples,
    examples_of,
    field_outline,
)

# How many different values a field has over all shards, from a sample of each shard.
#
# A value gets a hash of 64 bits. Of k + 1 or more different values the k smallest hashes are kept; if h is the
# largest of these, the number of values is about (k − 1) / (h / 2⁶⁴) with a standard error of 1/√(k − 2) of it (K.
# Beyer et al.: On synopses for distinct-value estimation under multiset operations, SIGMOD 2007). Samples of shards
# merge into that of all: of the hashes of both the k smallest. The number of fewer than k values is exact.

K = 4_096
"""Hashes of a sample: a standard error of 1.6 %."""
_RANGE = 1 << 64


class ValueSample(NamedTuple):
    """The different values of a field, in one shard or in several: from ``least`` to ``most``; hashes: the smallest."""

    least: int
    most: int
    hashes: Sequence[int]

    @classmethod
    def of(cls, parts: Mapping[Kind, ColumnPart]) -> ValueSample:
        count = sum(len(part.values) for part in parts.values())
        return cls(count, count, heapq.nsmallest(K, _hashes(parts)))

    @classmethod
    def merged(cls, samples: Iterable[ValueSample]) -> ValueSample:
        samples = list(samples)
        hashes = sorted({one for sample in samples for one in sample.hashes})[:K]
        least = max((sample.least for sample in samples), default=0)
        return cls(least, sum(sample.most for sample in samples), hashes)

    @property
    def distinct(self) -> int:
        """The number of values; exact below K, and of one shard."""
        if len(self.hashes) < K:
            return len(self.hashes)
        estimate = round((K - 1) * _RANGE / self.hashes[-1])
        return min(max(estimate, self.least), self.most)


def _hashes(parts: Mapping[Kind, ColumnPart]) -> Iterator[int]:
    for kind, part in parts.items():
        salt = kind[:1].encode()
        for value in part.values:
            text = value if kind == "keyword" else repr(float(value))
            digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8, salt=salt)
            yield int.from_bytes(digest.digest())


_KINDS: tuple[Kind, ...] = get_args(Kind)


Bounds = Mapping[Kind, tuple[float, float] | None]


class FieldFacts(NamedTuple):
    """A sample of the values of a field, in one shard or in all, and the bounds of each kind of them."""

    sample: ValueSample
    bounds: Bounds

    @classmethod
    def of(cls, column: Column) -> FieldFacts:
        bounds = {kind: bounds_of(kind, part) for kind, part in column.parts.items()}
        return cls(ValueSample.of(column.parts), bounds)

    @classmethod
    def parse(
        cls, sample: Sequence[Any], bounds: Mapping[Kind, Sequence[float] | None]
    ) -> FieldFacts:
        found = {kind: None if own is None else (own[0], own[1]) for kind, own in bounds.items()}
        return cls(ValueSample(*sample), found)

    @classmethod
    def merged(cls, shards: Sequence[FieldFacts]) -> FieldFacts:
        bounds: dict[Kind, tuple[float, float] | None] = {}
        for kind in _KINDS:
            found = [facts.bounds[kind] for facts in shards if kind in facts.bounds]
            known = [own for own in found if own is not None]
            if found:
                # Texts of one shard that are no times leave the field without bounds.
                is_known = len(known) == len(found)
                bounds[kind] = (min(known)[0], max(k[1] for k in known)) if is_known else None
        return cls(ValueSample.merged(facts.sample for facts in shards), bounds)

    @property
    def outline(self) -> FieldOutline:
        return field_outline(self.bounds, self.sample.distinct)


@dataclass(frozen=True, slots=True)
class Facts:
    """About the documents of one shard, or of all; columns, time_fields, has_ads and values as of ``SetManifest``."""

    columns: Mapping[str, Any]
    time_fields: Sequence[str]
    has_ads: bool
    values: Mapping[str, int]
    fields: Mapping[str, FieldFacts] = field(default_factory=dict)
    examples: Sequence[str] = ()

    @classmethod
    def of(cls, bundle: Bundle) -> Facts:
        columns: dict[str, Any] = {}
        for own in (bundle.manifest.columns or {}).get("fields", ()):
            refused = own.get("refused")
            columns[own["name"]] = sorted(own["parts"]) if refused is None else {"refused": refused}
        times = (
            name
            for name, column in bundle.columns.by_name.items()
            if "keyword" in column.parts
            and any(time_of(text) is not None for text in column.parts["keyword"].values)
        )
        values = {name: bundle.distinct_values(name) for name in bundle.columns.by_name}
        fields = {
            name: FieldFacts.of(column)
            for name, column in bundle.columns.by_name.items()
            if column.parts
        }
        has_ads, examples = read_ads(bundle.documents, bundle) is not None, examples_of(bundle)
        return cls(columns, sorted(times), has_ads, values, fields, examples)

    @classmethod
    def parse(cls, content: bytes) -> Facts:
        value = json.loads(content)
        fields = {name: FieldFacts.parse(*found) for name, found in value.pop("fields").items()}
        examples = tuple(value.pop("examples"))
        return cls(**value, fields=fields, examples=examples)

    def dump(self) -> bytes:
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
        fields: dict[str, list[FieldFacts]] = {}
        for facts in shards:
            for name, found in facts.fields.items():
                fields.setdefault(name, []).append(found)
        return Facts(
            dict(sorted(columns.items())),
            sorted(times),
            has_ads,
            dict(values),
            {
                name: FieldFacts.merged(found)
                for name, found in sorted(fields.items())
                if not isinstance(columns[name], dict)
            },
            chosen_examples(title for facts in shards for title in facts.examples),
        )

    @property
    def outline(self) -> Outline:
        fields = {name: found.outline for name, found in self.fields.items()}
        return Outline(fields, tuple(self.examples))
