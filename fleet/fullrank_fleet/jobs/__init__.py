"""Jobs of a cluster.

pieces.py    cut a corpus into pieces, and sort their lines by shard
shard.py     task: encode the documents of one shard and commit its bundle, its manifest last
facts.py     what set.json records of the documents
index.py     the job: split, build every shard, write set.json; a second run does only what is missing
compact.py   the job: fix the position, compact every shard with its live documents, write set.json
tasks.py     run tasks on a cluster, or in this process
"""
