"""Ads: documents with an object ``ad``, and the rules of pages about them.

Ad, parse_ad                ad.py        one ad, checked
AdTable                     table.py     the ads of many documents as arrays
AdRules, PriceFloor         rules.py     which ads a page may show, and which a placement
Taxonomy                    taxonomy.py  the categories below a category
"""

from fullrank.ads.ad import FIELD, Ad, has_ended, parse_ad
from fullrank.ads.rules import AdRules, PriceFloor
from fullrank.ads.table import AdTable
from fullrank.ads.taxonomy import Taxonomy

__all__ = [
    "FIELD",
    "Ad",
    "AdRules",
    "AdTable",
    "PriceFloor",
    "Taxonomy",
    "has_ended",
    "parse_ad",
]
