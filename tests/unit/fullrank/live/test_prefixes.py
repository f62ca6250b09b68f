"""The last word of a query stands for words of live documents that the model does not know."""

from __future__ import annotations

import pytest

from fullrank.live import Operation, View
from fullrank.search.complete import KNOWN, MOST, UNKNOWN
from tests.bundles import CORPUS, linear_model
from tests.live import bundle_of

BUNDLE = bundle_of(linear_model(CORPUS, n_dense=3), {d.id: d.fields for d in CORPUS})
WRITTEN = {
    "a": "kubectl kubernetes copy 2024",
    "b": "kubeadm kubelet",
    "c": "Kubernetes kube directory",
    "d": "東京 diré dired",
}


def view_of(texts: dict[str, str]) -> View:
    """The view with one write after another."""
    view = View.of(BUNDLE)
    for seq, (id, text) in enumerate(texts.items(), start=1):
        view = view.apply([Operation(seq, id, {"title": "", "text": text})])
    return view


def words_added(view: View, query: str) -> list[str]:
    own = {addition.term for addition in view.bundle.prefixes.of(query)}
    return [addition.term for addition in view.analyzer.begun(query) if addition.term not in own]


@pytest.mark.parametrize("word", ["ku", "kube", "kubec", "kubernetes", "dir", "co", "20"])
def test_completions_are_the_shortest_new_words(word: str) -> None:
    known = BUNDLE.known_words.is_known
    texts = " ".join(WRITTEN.values()).lower().split()
    expected = {
        other
        for other in texts
        if other.startswith(word) and other != word and not known(other) and not other.isdigit()
    }
    view = view_of(WRITTEN)
    found = words_added(view, f"copy {word}")
    assert found == sorted(expected, key=lambda other: (len(other), other))
    assert words_added(view.adopt(view.merge(view.added)), f"copy {word}") == found
    assert words_added(view, f"{word} ") == []


def test_there_are_few_completions() -> None:
    view = view_of({"a": " ".join(f"kube{'x' * n}" for n in range(20, 0, -1))})
    assert words_added(view, "kub") == [f"kube{'x' * n}" for n in range(1, MOST + 1)]


@pytest.mark.parametrize(("word", "share"), [("kubern", UNKNOWN), ("kube", KNOWN)])
def test_features_have_a_share_of_the_weight_of_whole_words(word: str, share: float) -> None:
    view = view_of(WRITTEN)
    own = view.model.encode_queries(["kubernetes"]).sparse
    [added] = [a for a in view.analyzer.begun(word) if a.term == "kubernetes"]
    assert added.indices.tolist() == own.indices.tolist()
    assert added.weights == pytest.approx(share * own.values)


@pytest.mark.parametrize("is_merged", [False, True])
def test_words_of_documents_that_are_gone_are_unknown_again(is_merged: bool) -> None:
    """The view has the completions, known words and evidence of one that never had those documents."""
    left = {"a": WRITTEN["a"], "d": WRITTEN["d"]}
    view = view_of(WRITTEN).apply([Operation(10 + n, id, None) for n, id in enumerate("bc")])
    if is_merged:
        view = view.adopt(view.merge(view.added))
    expected = view_of(left)
    assert words_added(expected, "ku") == ["kubectl", "kubernetes"]
    for query in ("ku", "kube", "kubel", "dir", "copy kubelet", "kubeadm", "kubernetes", "diré"):
        assert words_added(view, query) == words_added(expected, query)
        assert view.analyzer.is_in_documents(query) == expected.analyzer.is_in_documents(query)
        added, other = view.analyzer.begun(query), expected.analyzer.begun(query)
        assert [a.weights.tolist() for a in added] == [a.weights.tolist() for a in other]
