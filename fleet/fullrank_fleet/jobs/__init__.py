"""Jobs of a cluster.

pieces.py   cut a corpus into pieces that tasks read on their own
split.py    task: sort the lines of one piece by shard
shard.py    task: encode the documents of one shard and commit its bundle
facts.py    what set.json records of the documents
index.py    the job: split, build every shard, write set.json; a second run does only what is missing
commit.py   upload the bundle of a shard, its manifest last
operations.py      the live documents up to one position of the log, as objects
compact_shard.py   task: compact one shard with its live documents
compact.py         the job: fix the position, compact every shard, write set.json; remove operations from the log
tasks.py    run tasks on a cluster, or in this process
"""
