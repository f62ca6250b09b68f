"""Ads in placements of pages.

Ad, parse_ad        ad.py            the object `ad` of a document, checked
AdTable             table.py         the ads of many documents as arrays
AdRules, PriceFloor rules.py         which ads a page may show, and which a placement; taxonomies
PageFilling         filling.py       which documents of this process go into which placement
Slot, Valuation     placing.py       the loop that fills placements, on one machine and on a router
Calibration         calibrations.py  probabilities of clicks, from the log of events
Pages               pages.py         the texts of pages by address
"""
