"""What people did with answers: served lists and events, in files that any number of machines can merge by copying.

records.py      what the log stores: what answers showed, and what clients report, checked
segments.py     files of JSON lines: append, sync, seal, recover, merge and list
compaction.py   what is too old, too much or erased leaves the disk; small segments are merged
log.py          lists and events as a reader sees them; pseudonyms, and who has been erased
days.py         digests of the log, a file for each day
caps.py         what one person may do to a ranking
together.py     documents that the same people clicked
interleave.py   one list of two rankings, or of one that explores
votes.py        which of the two rankings people clicked
decisions.py    when the votes decide, and what the loop decided about each version

Times are in seconds since 1970.
"""
