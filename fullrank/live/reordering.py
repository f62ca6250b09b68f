"""The second stage over the documents of several parts: its features, and its order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fullrank.encoding import Float32
from fullrank.live.gather import Selection, gather_facts
from fullrank.live.hits import Hits, LiveHit
from fullrank.live.part import Part
from fullrank.rerank.features import FirstStage
from fullrank.rerank.stage import DEPTH, SecondStage


def features_of(
    stage: SecondStage, text: str, parts: Sequence[Part], hits: Sequence[LiveHit]
) -> Float32 | None:
    """Compute what a second stage orders hits by.

    Args:
        stage: The second stage.
        text: The query's text.
        parts: Those of the view that found the hits.
        hits: Best first, by score.

    Returns:
        float32 (R, K), in which gap and place are those in this list; None without hits.
    """
    number = {id(part): i for i, part in enumerate(parts)}
    facts = gather_facts(parts, Selection.of([(number[id(hit.part)], hit.row) for hit in hits]))
    if facts is None:
        return None
    columns = zip(*((hit.score, hit.dense, hit.lexical, hit.bias) for hit in hits), strict=True)
    return stage.features(text, FirstStage(*(np.array(column) for column in columns)), facts)


def reordered(
    stage: SecondStage, text: str, parts: Sequence[Part], found: Hits, page: slice
) -> Hits:
    """Return a page of a ranking that starts at its first place, after the second stage; arguments: as above."""
    hits = found.hits[:DEPTH]
    features = features_of(stage, text, parts, hits)
    if features is None:
        return replace(found, hits=[])
    order = stage.order_by(features)
    best = [
        found.hits[i]._replace(features=order.features[i]) if i < len(hits) else found.hits[i]
        for i in order.places(len(found.hits))[page].tolist()
    ]
    return replace(found, hits=best, reordered=len(hits))
