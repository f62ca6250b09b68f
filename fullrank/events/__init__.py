"""What people did with answers: served lists and events, in files that any number of machines can merge by copying.

segments.py   files of JSON lines: append, sync, seal, recover
records.py    what a client reports, checked
archive.py    the folder of segments: list, read, expire
"""
