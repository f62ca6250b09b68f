"""What a query may have meant, where live documents know words that the model does not."""

from __future__ import annotations

import numpy as np

from fullrank.live.view import View


def did_you_mean(view: View, text: str) -> str | None:
    """Return a query with each unknown word replaced by a known one that is one edit away; None if there is none.

    A word that some live document has is known, although the model may not know it.

    Example:
        >>> did_you_mean(View.of(open_bundle(path)), "red aple")
        'red apple'
    """
    return view.bundle.known_words.corrected(text, lambda word: _is_in_live(view, word))


def _is_in_live(view: View, word: str) -> bool:
    if not view.added:
        return False
    features = view.model.encode_queries([word]).sparse.indices
    unseen = features[features >= view.bundle.model.n_sparse]
    return any(
        part.features is not None and bool(np.isin(unseen, part.features).any())
        for part in view.added
    )
