"""Completions of a view are titles and words of its documents, also of live ones."""

from __future__ import annotations

from pathlib import Path

from fullrank.bundle import open_bundle
from fullrank.live import Operation, View
from fullrank_service.completion.usage import CandidateReader, Digest
from tests.bundles import make_bundle


def test_live_documents_bring_titles_and_words(tmp_path: Path) -> None:
    make_bundle(tmp_path, "m")
    [path] = (tmp_path / "m").iterdir()
    reader = CandidateReader()
    view = View.of(open_bundle(path))
    assert reader.completions(view, Digest()).complete("kub", 5) == []
    fields = {"title": "Kubernetes notes", "text": "kubectl, kubelet"}
    view = view.apply([Operation(1, "k", fields)])
    found = reader.completions(view, Digest()).complete("kub", 5)
    texts = [(one.text, one.kind.name) for one in found]
    assert texts == [
        ("Kubernetes notes", "TITLE"),
        ("kubectl", "WORD"),
        ("kubelet", "WORD"),
        ("kubernetes", "WORD"),
    ]
    view = view.apply([Operation(2, "k", None)])
    assert reader.completions(view, Digest()).complete("kub", 5) == []


def test_the_first_searched_field_is_the_title_of_documents_without_one(tmp_path: Path) -> None:
    """The model reads title and text."""
    make_bundle(tmp_path, "m")
    [path] = (tmp_path / "m").iterdir()
    view = View.of(open_bundle(path)).apply(
        [
            Operation(1, "a", {"text": "Kubernetes  notes"}),
            Operation(
                2, "b", {"title": " ", "text": "Kubernetes book", "maker": "Kubernetes press"}
            ),
            Operation(3, "c", {"text": "Kubernetes " + "long " * 20}),
            Operation(4, "d", {"title": "Other", "text": "Kubernetes"}),
        ]
    )
    found = CandidateReader().completions(view, Digest()).complete("kub", 9)
    assert {one.text for one in found if one.kind.name == "TITLE"} == {
        "Kubernetes notes",
        "Kubernetes book",
    }
