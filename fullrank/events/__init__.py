"""What people did with answers: served lists and events, in files that any number of machines can merge by copying.

segments.py   files of JSON lines: append, sync, seal, recover
sealed.py     those that are complete: write, replace, remove with their checksum
merged.py     which of them hold others
merging.py    make those of small ones
archive.py    the folder of segments: list and read
lists.py      what an answer showed
records.py    what a client reports, checked
reported.py   a list that only a client knows of, checked
insights.py   events in the shape of Algolia
compaction.py what is too old, too much or erased leaves the disk
people.py     pseudonyms, and who has been erased
places.py     where a service keeps them
days.py       digests of the log, a file for each day
log.py        lists and events as a reader sees them
"""
