"""Ads in placements of pages.

PageFilling, Slot   filling.py       which documents go into which placement
RuleMasks           masks.py         what rules of pages forbid, kept
Valuation           valuing.py       price × probability of a click
Calibrations        calibrations.py  probabilities of clicks, fitted on a thread
Outcomes            outcomes.py      impressions and clicks by score and placement
Pages               pages.py         the texts of pages by address
Signer, Served      tokens.py        signed tokens of served ads
Counts              counts.py        impressions and clicks, each counted once
Leases              leases.py        budgets shared by machines
SharedCaps          shared_caps.py   impressions shared by machines, for caps
AdEvents            events.py        tokens for hits, counts for what clients report
AdServices          services.py      all of them in one worker
"""
