"""What people do with answers, from the requests of one worker to the log of fullrank.events.

recorder.py    the whole: record answers, store events, erase people, count the last days
shown.py       what an answer showed, noted on the event loop, and its line; which clients are programs
upkeep.py      events that wait share one sync; a thread writes lists, seals segments and removes what is old
"""
