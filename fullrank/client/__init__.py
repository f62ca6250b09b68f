"""A client of the service, for Python: needs the extra ``fullrank[client]``.

client.py   Client: a method for each route that applications call; fullrank/replies.py has their types

    with Client("http://localhost:8000") as client:
        for hit in client.search("copy a file", limit=3)["hits"]:
            print(hit["id"], hit["score"])
"""

try:
    from fullrank.client.client import Client, ServiceError
except ModuleNotFoundError as error:
    if error.name != "httpx":
        raise
    reason = "fullrank.client needs httpx; install it with: pip install 'fullrank[client]'"
    raise ModuleNotFoundError(reason, name=error.name) from error

__all__ = ["Client", "ServiceError"]
