"""Jobs of a cluster.

pieces.py   cut a corpus into pieces that tasks read on their own
split.py    task: sort the lines of one piece by shard
shard.py    task: encode the documents of one shard and commit its bundle
facts.py    what set.json records of the documents
index.py    the job: split, build every shard, write set.json; a second run does only what is missing
tasks.py    run tasks on a cluster, or in this process
"""
