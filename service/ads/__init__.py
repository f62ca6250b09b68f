"""Ads in placements of pages.

PageFilling, Slot   filling.py   which documents go into which placement
Pages               pages.py     the texts of pages by address
Signer, Served      tokens.py    signed tokens of served ads
Counts              counts.py    impressions and clicks, each counted once
AdEvents            events.py    tokens for hits, counts for what clients report
AdServices          services.py  all of them in one worker
"""
