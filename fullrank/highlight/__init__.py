"""Highlights: the part of a field that answers a query best, and the words in it to mark.

    Highlight   what to mark
    Snippet     a part of a field and the spans in it
    Tags        what encloses a span
    highlights  the snippets of documents for a query

fields.py      the words of fields
highlights.py  which words count, and how much
snippets.py    the window, its spans, and tags
"""

from fullrank.highlight.highlights import Highlight, highlights
from fullrank.highlight.snippets import Snippet, Tags

__all__ = ["Highlight", "Snippet", "Tags", "highlights"]
