"""Ads in placements of pages.

PageFilling         filling.py       which documents of this process go into which placement
Slot, Valuation     placing.py       the loop that fills placements, on one machine and on a router
AdCounts            calibrations.py  probabilities of clicks, from the log of events
Pages               pages.py         the texts of pages by address
"""
