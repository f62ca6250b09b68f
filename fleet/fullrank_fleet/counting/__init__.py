"""Counting on many machines: the counts of one machine, bit for bit.

tally.py      task: count one piece of a collection, its words cut by hash
counting.py   tasks that merge and number the words; the job that puts the counts of all pieces into rows
"""
