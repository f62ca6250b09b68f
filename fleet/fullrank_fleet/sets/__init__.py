"""The sharded bundle: a folder of bundles, and a ``set.json`` that is written last.

<root>/<name>/<version>/shard-00007/manifest.json …   a bundle without its model
<root>/<name>/<version>/model/, rerank/                 the model of all shards
<root>/<name>/<version>/set.json                       which shard has which documents
<root>/<name>/<version>/titles.json                    titles that complete what people type
<root>/<name>/<version>/words.json                     of a compacted set

manifest.py   SetManifest: the fields of set.json; read_set, write_set, find_set, find_version, newest_set, sets_of
words.py      SetTitles: titles that complete what people type; SetWords: words that training did not see
"""
