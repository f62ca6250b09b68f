"""What a router has of a set: its model and the names of its fields, without documents."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from fullrank.bundle import Bundle, open_trained
from fullrank.errors import BundleError, DocumentRefused
from fullrank.filters.columns import Column, Columns, Kind, aligned
from fullrank.filters.columns.table import scale_of
from fullrank.live import Operation, View
from fullrank.models.unseen import OpenModel, live_model
from fullrank.retrieval import Retriever
from fullrank.search.part import Part
from fullrank.storage.documents import Document
from fullrank.storage.encoding import Encoded, Rows
from fullrank.storage.strings import DocumentStore
from fullrank_fleet.remote import BundleCache, Folder
from fullrank_fleet.sets.manifest import SetManifest, fetch_shard, model_id, shard_folder
from fullrank_fleet.sets.words import SetTitles, SetWords, read_titles, read_words
from fullrank_service.completion.usage import TITLE

# The fields of a set, so that every shard checks a request as the whole would.
#
# A filter is valid if any shard has the field and the kind, and a text field is sorted by time if any shard has a
# time in it. Each shard aligns its own columns with a table that has the kinds of all shards and no documents. Live
# documents may have other fields; a router knows all of these, and sends with a request what set.json lacks.


@dataclass(frozen=True, slots=True)
class NewFields:
    """What live documents have added to the fields of a set.

    Attributes:
        kinds: All kinds of each field that has new ones.
        refused: Why a field cannot be filtered by any more.
        times: Text fields that have times now.
    """

    kinds: tuple[tuple[str, frozenset[Kind]], ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    times: frozenset[str] = frozenset()

    @classmethod
    def of(cls, view: View, compared: Collection[str] = ()) -> NewFields:
        """Return what a shard must know, given the view of a router and the fields that are compared."""
        if not view.added:
            return NONE_NEW
        before, now = view.base.columns, view.columns[0]
        kinds = tuple(
            (name, column.kinds)
            for name, column in now.by_name.items()
            if name not in before or before[name].kinds != column.kinds
        )
        refused = tuple((n, why) for n, why in now.refused.items() if n not in before.refused)
        times = frozenset(
            name
            for name in compared
            if name in now and not (name in before and before[name].has_times_elsewhere)
            if scale_of([columns[name] for columns in view.columns]) == "time"
        )
        return cls(kinds, refused, times)


NONE_NEW = NewFields()


def columns_of_set(manifest: SetManifest, new: NewFields = NONE_NEW) -> Columns:
    """Return the fields of a set as columns without documents."""
    refused = {
        n: kinds["refused"] for n, kinds in manifest.columns.items() if isinstance(kinds, dict)
    }
    refused |= dict(new.refused)
    kinds = {**manifest.columns, **dict(new.kinds)}
    times = manifest.time_fields | new.times
    by_name = {
        name: Column(name, {}, 0, frozenset(found), name in times)
        for name, found in kinds.items()
        if name not in refused
    }
    return Columns(0, by_name, refused)


def view_in_set(view: View, manifest: SetManifest, new: NewFields) -> View:
    """Return the view of a shard with the fields of its set."""
    own = aligned([view.base.columns, columns_of_set(manifest, new)])[0]
    return replace(view, base=replace(view.base, fields=own))


@dataclass(frozen=True, eq=False)
class Head(Bundle):
    """A bundle with the model and the second stage of a set, its fields, and no documents.

    Encoding a query, checking a request and correcting a word are the same for all shards, so a router does them with
    the code that does them for an ordinary bundle. The second stage reorders what shards have found.
    """

    set: SetManifest = field(kw_only=True)
    takes_writes: bool = field(kw_only=True)
    words: SetWords = field(kw_only=True)
    titles: SetTitles = field(kw_only=True)

    @property
    def bundle_id(self) -> str:
        """The id of the set, so that nothing of it is taken for that of one shard."""
        return self.set.set_id

    @property
    def n_documents(self) -> int:
        return self.set.documents

    @cached_property
    def columns(self) -> Columns:
        return columns_of_set(self.set)

    @cached_property
    def live_model(self) -> OpenModel | None:
        """None without a log, which shards share."""
        return live_model(self.model) if self.takes_writes else None

    @property
    def new_words(self) -> Sequence[str]:
        return self.words.new

    def find_unseen(self) -> Callable[[], frozenset[int]]:
        return partial(frozenset, self.words.features)

    def distinct_values(self, name: str) -> int:
        return self.set.values.get(name, 0)

    @cached_property
    def titled(self) -> Part:
        """The documents of the set that have a title, with nothing else."""
        pairs = zip(self.titles.ids, self.titles.titles, strict=True)
        store = DocumentStore.of([Document(id, {TITLE: title}) for id, title in pairs])
        return Part(f"{self.bundle_id}/titles", store, self.retriever, Columns(0, {}, {}))

    @property
    def shards(self) -> list[int]:
        return [number for number, shard in enumerate(self.set.shards) if shard.documents]

    @staticmethod
    def open(
        folder: Folder, manifest: SetManifest, cache: BundleCache, *, takes_writes: bool
    ) -> Head:
        """Open the head of a set: its words, its titles, and what training wrote, which is in every shard.

        Raises:
            BundleError: A file is missing or damaged, or the shard has another model than the set.
            RemoteError: A file cannot be read.
        """
        filled = [number for number, shard in enumerate(manifest.shards) if shard.documents]
        number = min(filled, key=lambda number: manifest.shards[number].bytes)
        path = fetch_shard(cache, folder, manifest, number, is_whole=False)
        of_shard, model, second_stage = open_trained(path)
        if model_id(of_shard) != manifest.model_id:
            raise BundleError(f"{folder / shard_folder(number)}: has another model than its set")
        named = replace(
            of_shard,
            name=manifest.name,
            version=manifest.version,
            created=manifest.created,
            card=manifest.card,
            log_position=manifest.log_position,
        )
        encoded = Encoded.from_rows(
            Rows.empty(0, model.n_sparse), np.zeros((0, model.n_dense), np.float32)
        )
        return Head(
            path,
            named,
            model,
            encoded,
            DocumentStore([], []),
            Retriever(encoded),
            {},
            second_stage,
            set=manifest,
            takes_writes=takes_writes,
            words=read_words(folder, manifest),
            titles=read_titles(folder, manifest),
        )


@dataclass(frozen=True, eq=False)
class HeadView(View):
    """The view of a head: no documents of the set, and all live ones, so that it knows their words and fields.

    Attributes:
        min_seq: Operation of the log that shards must have read to answer.
        of_set: Documents of the set that have a title, without those that were replaced or deleted; never searched.
    """

    min_seq: int = 0
    of_set: Part | None = None

    @classmethod
    def of(cls, bundle: Bundle, seq: int = 0) -> HeadView:
        assert isinstance(bundle, Head)
        return replace(super().of(bundle, seq), of_set=bundle.titled)

    @property
    def titled(self) -> tuple[Part, ...]:
        return self.added if self.of_set is None else (self.of_set, *self.added)

    def apply(self, operations: Iterable[Operation]) -> HeadView:
        operations = list(operations)
        view = super().apply(operations)
        assert isinstance(view, HeadView)
        if view is self or self.of_set is None:
            return view
        ids = list({operation.id for operation in operations if operation.seq > self.seq})
        rows = self.of_set.live_rows(ids)
        return replace(view, of_set=self.of_set.remove(rows))

    def check(self, id: str, fields: Mapping[str, Any], *, is_storable: bool = False) -> None:
        """Check as ``View``; without a log every document is refused."""
        head = self.bundle
        assert isinstance(head, Head)
        if not head.takes_writes:
            raise DocumentRefused(refusal(head.name))
        super().check(id, fields, is_storable=is_storable)

    def is_live(self, id: str) -> bool:
        """Return whether a document was written since the set was made; False without such a document, too."""
        try:
            return super().is_live(id)
        except KeyError:
            return False

    def waiting_for(self, seq: int) -> HeadView:
        """Return this view; shards answer for it once they have read the log up to a number."""
        return self if seq == self.min_seq else replace(self, min_seq=seq)


def refusal(collection: str) -> str:
    return (
        f"{collection} is a sharded bundle, which takes live documents only with FULLRANK_DOCUMENTS_URL;"
        " without it, index its corpus again"
    )
