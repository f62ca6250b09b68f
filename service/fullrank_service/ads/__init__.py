"""Ads in placements of pages.

PageFilling         filling.py       which documents go into which placement
Slot                placing.py       the loop that fills placements, on one machine and on a router
Eligible            eligible.py      which ads a page may show
RuleMasks           masks.py         what rules of pages forbid, kept
Valuation           valuing.py       price × probability of a click
Calibrations        calibrations.py  probabilities of clicks, fitted on a thread
Outcomes            outcomes.py      impressions and clicks by score and placement
Pages               pages.py         the texts of pages by address
Signer, Served      tokens.py        signed tokens of served ads
Counts              counts.py        impressions and clicks, each counted once
Ledger              ledger.py        what ads have spent, in memory
Spending            spending.py      a ledger that follows the counts
Leases              leases.py        budgets shared by machines
SharedCaps          shared_caps.py   impressions shared by machines, for caps
AdEvents            events.py        tokens for hits, counts for what clients report
AdServices          services.py      all of them in one worker
"""
