"""Every recipe in a small size: the cases that the contract suite trains on planted data.

A recipe of the shared losses needs no line here; SMALL is for knobs of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from fullrank_trainer.recipes.recipe import load_recipe, recipe_names

_MARGIN = ("epochs=8", "rates=0.03,0.1", "trial=300")
_SOFTMAX = ("epochs=10", "patience=10", "batch=32", "candidates=30", "train.rate=0.1")
_FIELDED = (*_SOFTMAX, "latent_terms=7", "match_terms=6")

_CFH = (*_SOFTMAX, "loss=softmax", "bins=3", "bin_words=80", "bigrams=2", "trigrams=on")

SMALL: dict[str, tuple[str, ...]] = {
    "cfh": ("bin_words=80",),
    "cfh-multiple": ("bin_words=80",),
    "cfh-mixed": ("bin_words=80",),
    "cfh-2grams": ("bin_words=80", "latent_words=70", "bigrams=3"),
    "query-expansion": ("trials=beta=0.5,feedback=3;beta=1,feedback=6",),
    "ssi-frequent": ("latent_words=70",),
    "htr-graph": ("trial=300",),
    "htr-reconstruction": ("trial=300",),
    "ssi-dense": ("pairs.terms=7",),
    "ssi-dense-zero-diagonal": ("pairs.terms=7", "match_terms=20"),
    "ssi-sparse": ("pairs.keep=4", "pairs.removal=0.5"),
    "hash-kernels": ("pairs.slots=4001",),
    "hash-kernels-identity": ("pairs.slots=1009", "pairs.terms=7"),
    "bltm-pr-1v": ("lambda2=0",),
    "unigram": ("lambda1=0.3",),
    "titles": ("fields=joined",),  # the planted titles have no word of a query
    "dssm": ("dimension=16", "layers=16,8", "phi=counts", "init=0", "epochs=20", "layer_rate=0.02"),
    "dssm-batch": ("dimension=16", "layers=16,8", "epochs=20", "layer_rate=0.02"),
    **dict.fromkeys(
        ("auto", "best"),
        (
            "blend.recipes=bm25;word-translation expanded=400 lambda1=0.3 lambda2=0.5;"
            "clicked dimension=8 epochs=10 batch=32 candidates=30 train.rate=0.1",
            "blend.linked=bm25;fielded dimension=8 epochs=10 batch=32 candidates=30 train.rate=0.1",
        ),
    ),
    "cross-language-mixed": (
        "mixed.recipes=cross-language dimension=8 epochs=8 rates=0.1;translation-tfidf",
        "trials=alpha=0.2;alpha=0.5",
    ),
    "dssm-modern": ("layers=8,8",),
    "s2net": ("train.epochs=4",),
    "s2net-tfidf": ("train.epochs=4",),
}
"""Overrides of a recipe beside those of its loss."""

LINKS = {"htr-graph", "htr-reconstruction"}
"""Recipes trained on document → document data: a graph takes the links for its edges, and what learns without labels
has only a document's own words to find it by."""

TRANSDUCTIVE = {"htr", "htr-identity", "htr-graph", "htr-reconstruction"}
"""Recipes that learn a dense vector of each document of the corpus; one added later gets that of its words."""


@dataclass(frozen=True)
class Case:
    """A recipe in a small size; `links` trains it on document → document data."""

    label: str
    recipe: str
    overrides: tuple[str, ...]
    links: bool = False

    @property
    def transductive(self) -> bool:
        """Tell whether training fits one dense vector per document."""
        return self.recipe in TRANSDUCTIVE


def _case(name: str) -> Case:
    recipe = load_recipe(name)
    overrides = ["model.dimension=8"]
    if recipe.train.loss == "margin":
        overrides += _MARGIN
    if recipe.train.loss == "softmax":
        overrides += _FIELDED
    overrides += SMALL.get(name, ())
    if recipe.auto.trials and recipe.train.loss == "softmax":
        overrides += ["auto.seconds=60", "trials=train.rate=0.001;train.rate=0.1"]
    return Case(name, name, tuple(overrides), links=name in LINKS)


CASES = [
    *map(_case, recipe_names()),
    Case("ssi-tied links", "ssi-tied", ("dimension=8", *_MARGIN), links=True),
    Case("cl-lsa languages", "cl-lsa", ("dimension=8", "tied=false")),
    Case("fielded links", "fielded", ("dimension=8", *_SOFTMAX, "trigrams=on"), links=True),
    Case("dssm tied", "dssm", ("dimension=8", *_SOFTMAX, "layers=8", "tied=true"), links=True),
    Case("clicked", "fielded", ("dimension=8", *_FIELDED, "clicked=on")),
    Case("clicked links", "fielded", ("dimension=8", *_SOFTMAX, "clicked=on"), links=True),
    Case("members", "fielded", ("dimension=8", *_FIELDED, "members=2")),
    Case("cosine", "fielded", ("dimension=8", *_FIELDED, "model.cosine=5")),
    Case("damped counts", "word-translation", ("damped=true", "lambda1=0.3", "lambda2=0.5")),
    Case(
        "shares of long documents", "word-translation", ("length=0.5", "lambda1=0.3", "lambda2=0.5")
    ),
    Case("expanded documents", "word-translation", ("expanded=400", "lambda1=0.3", "lambda2=0.5")),
    Case("fielded buckets", "fielded", ("dimension=8", *_FIELDED, "buckets=5", "words=60")),
    Case("spelling", "fielded", ("dimension=8", *_FIELDED, "trigrams=on", "spelling=0.7")),
    Case("spelling tfidf", "cfh", ("dimension=8", *_CFH, "spelling=1", "words=60")),
    Case("cfh links", "cfh-2grams", ("dimension=8", *_CFH), links=True),
    Case("query expansion links", "query-expansion", ("trials=beta=1,feedback=4",), links=True),
    Case("translation bm25", "translation-tfidf", ("match=bm25", "fields=each", "phrases=true")),
    Case("ssi softmax", "ssi-tied", ("dimension=8", *_SOFTMAX, "loss=softmax"), links=True),
]

EVERYDAY = {"auto", "bm25", "clicked", "fielded", "fielded links", "titles", "word-translation"}
"""Cases of what most bundles are; `make test` runs these, and `make test-long` all others too."""
