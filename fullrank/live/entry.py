"""Which documents a bundle can take while it serves."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any

from fullrank.bundle import Bundle
from fullrank.errors import BundleError, DocumentRefused
from fullrank.filters.columns import Columns
from fullrank.filters.columns.build import ColumnsBuilder
from fullrank.storage.documents import fields_line, has_text, text_of

_MAX_LABEL_SHARE = 0.2  # distinct values of a label, per document
# What a segment keeps: of a document its bias, places and filter values; of a dimension the number and its code; of a
# sparse entry also its posting; of a column that one document has its list, limits and number; of a new word its place.
_DOCUMENT_BYTES, _DIMENSION_BYTES, _ENTRY_BYTES, _COLUMN_BYTES, _WORD_BYTES = 100, 5, 16, 20, 8


class Entry:
    """Checks documents before they are written."""

    def __init__(self, bundle: Bundle, columns: Columns) -> None:
        self._bundle, self._columns = bundle, columns

    def check(self, id: str, fields: Mapping[str, Any], *, is_storable: bool = False) -> None:
        """Check that the bundle can take a document.

        Args:
            is_storable: They are known to have a JSON form that nests less than documents may.

        Raises:
            DocumentRefused: The model takes no live documents; a text field is not text; no text field has any text, so
                that no search would find the document; a value nests too deep; or a value would take its field from
                the filters of all other documents.
        """
        model = self._bundle.live_model
        if model is None:
            raise DocumentRefused(
                f"The model of {self._bundle.version} supports no live documents: each would change the "
                "scores of others"
            )
        texts = self._texts
        for name in texts:
            value = fields.get(name)
            if value is not None and text_of(value) is None:
                raise DocumentRefused(f"Field {name!r} is {type(value).__name__}, not text")
        if not has_text(fields, texts):
            raise DocumentRefused(
                f"No text to search for: fill one of the fields {', '.join(map(repr, texts))}"
            )
        if not is_storable:
            try:
                fields_line(id, fields)
            except BundleError as error:
                raise DocumentRefused(str(error)) from error
        if not self._filtered.isdisjoint(fields):
            self._check_columns({n: v for n, v in fields.items() if n in self._filtered})

    def memory_of(self, fields: Mapping[str, Any]) -> int:
        """Estimate the bytes of memory that the words and vectors of a document take in each worker.

        A word that the model does not know takes about 55, or 130 where it has other forms, besides its letters.
        """
        model = self._bundle.live_model
        if model is None:
            return 0
        found, new = model.words_in(fields)
        letters = sum(len(found[i].encode("utf-8", "surrogatepass")) for i in new)
        columns = model.features_per_word * len(new)
        entries = self._bundle.entries_of(len(found) - len(new)) + columns
        return (
            _DOCUMENT_BYTES
            + model.n_dense * _DIMENSION_BYTES
            + entries * _ENTRY_BYTES
            + columns * _COLUMN_BYTES
            + len(new) * _WORD_BYTES
            + letters
        )

    def new_fields(self) -> NewFields:
        """Return what no document has yet, for documents that are written together."""
        is_live = self._bundle.live_model is not None
        texts = self._texts if is_live else []
        return NewFields({*self._columns.by_name, *self._columns.refused, *texts})

    @cached_property
    def _texts(self) -> list[str]:
        assert self._bundle.live_model is not None
        return self._bundle.live_model.text_fields

    @cached_property
    def _filtered(self) -> frozenset[str]:
        searched = {name for name in self._texts if not self._is_label(name)}
        return frozenset(self._columns.by_name) - searched

    def _is_label(self, name: str) -> bool:
        """Check for a field with few distinct values, such as a category: filters need it though it is searched."""
        distinct = self._bundle.distinct_values(name)
        return 1 < distinct <= _MAX_LABEL_SHARE * self._bundle.n_documents

    def _check_columns(self, fields: Mapping[str, Any]) -> None:
        """Refuse values that would take a field from the filters, or its numbers from ranges."""
        builder = ColumnsBuilder()
        builder.add(fields)
        for name, reason in builder.refused.items():
            raise DocumentRefused(f"Field {name!r} is used in filters, but {reason}")
        for name, kinds in builder.kinds.items():
            column = self._bundle.columns.by_name.get(name)
            if column is not None and column.kinds == {"number"} and kinds - {"number"}:
                raise DocumentRefused(
                    f"Field {name!r} holds only numbers in {self._bundle.version}: send numbers or null"
                )


class NewFields:
    """Fields that the documents of one request bring in: none may take a field from the filters of those before it."""

    def __init__(self, known: Collection[str]) -> None:
        self._known = frozenset(known)
        self._is_filtered: dict[str, bool] = {}

    def add(self, fields: Mapping[str, Any]) -> None:
        """Note the fields of a document. Raises DocumentRefused for a value that its field cannot have in filters."""
        if self._known.issuperset(fields):
            return
        new = {n: v for n, v in fields.items() if v is not None and n not in self._known}
        builder = ColumnsBuilder()
        builder.add(new)
        for name, reason in builder.refused.items():
            if self._is_filtered.get(name):
                raise DocumentRefused(
                    f"Field {name!r} is used in filters by an earlier line, but {reason}"
                )
        for name in new:
            self._is_filtered.setdefault(name, name not in builder.refused)
