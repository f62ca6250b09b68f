"""Counting on many machines: the counts of one machine, bit for bit.

objects.py    arrays and words of one object
tally.py      task: count one piece of a collection, its words cut by hash
merge.py      tasks: merge the words of one hash bucket; number all words; number the words of one piece
counting.py   the job: run the tasks, then put the counts of all pieces into rows
"""
