"""Jobs of a cluster.

pieces.py    cut a corpus into pieces, and sort their lines by shard
job.py       the folder of a job, what it keeps of each shard, and the set.json at its end
facts.py     what set.json records of the documents
index.py     the job: split, build every shard, write set.json; a second run does only what is missing
compact.py   the job: fix the position, compact every shard with its live documents, write set.json
tasks.py     run tasks on a cluster, or in this process
"""
