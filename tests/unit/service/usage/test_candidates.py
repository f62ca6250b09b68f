"""Completions of a view are titles and words of its documents, also of live ones."""

from __future__ import annotations

from pathlib import Path

from fullrank.bundle import open_bundle
from fullrank.live import Operation, View
from service.usage.candidates import CandidateReader
from service.usage.digest import Digest
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
