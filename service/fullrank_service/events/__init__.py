"""What people do with answers, from the requests of one worker to the log of fullrank.events.

recorder.py   the whole: record answers, store events, erase people
shown.py      what an answer showed, noted on the event loop, and its line
journal.py    events on disk: one sync for the requests that wait
upkeep.py     the thread that writes lists, seals segments, measures the folder, removes what is old
capacity.py   whether there is space left
agents.py     which clients are programs
analytics.py  what the log says of the last days
"""
