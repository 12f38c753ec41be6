"""Search in Elasticsearch, for those who have one: an index for each collection, with fields `title` and `text`.

The documents lie in the environment's folder all the same: instances name them, and their ids are those of the index.
"""

import ssl
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import httpx

from whetstone_agent.tooluse.errors import ApiNotJsonError, ApiRefusedError, ApiUnavailableError, NoIndexError
from whetstone_agent.tooluse.retrieval import Document

PAUSES_SECONDS: Final = (0.5, 2.0)
"""Pauses before a search is tried again that failed by no doing of the agent's."""
_PASSING: Final = frozenset({408, 429})


class Elasticsearch:
    """Searches; threads may share it.

    Args:
        url: Base URL.
        authorization: The whole header `Authorization`, such as `ApiKey …`; None for none.
        authority: File with certificate authorities, PEM; None for those of the system.
        index_prefix: Stands before a collection's name in that of its index.
        timeout_seconds: Longest time of one search.
        pauses_seconds: A search that fails by the server's own doing is tried again after each of them.
        sleep: Waits for seconds.
    """

    def __init__(
        self,
        url: str,
        *,
        authorization: str | None = None,
        authority: Path | None = None,
        index_prefix: str = "",
        timeout_seconds: float = 30.0,
        pauses_seconds: Sequence[float] = PAUSES_SECONDS,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._url = url.rstrip("/")
        self._prefix = index_prefix
        self._pauses = tuple(pauses_seconds)
        self._sleep = sleep
        headers = {"Authorization": authorization} if authorization else {}
        verify = ssl.create_default_context(cafile=str(authority)) if authority is not None else True
        self._client = httpx.Client(headers=headers, timeout=timeout_seconds, verify=verify)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._client.close()

    def check(self, collections: Iterable[str]) -> None:
        """Make sure that there is an index for each collection.

        Raises:
            NoIndexError: There is none.
            ApiUnavailableError, ApiNotJsonError, ApiRefusedError: As `search` does.
        """
        for name in collections:
            self._ask(name, "_count", {"query": {"match_all": {}}})

    def search(self, collection: str, query: str, top_k: int) -> list[Document]:
        """Return the documents that fit a query best, best first.

        Args:
            collection: What agents call it.
            query: Words in any form.
            top_k: Documents at most.

        Raises:
            ApiUnavailableError: It is down, slow, or fails, also when asked again.
            ApiNotJsonError: The answer is not that of a search.
            ApiRefusedError: It refuses the credentials.
            NoIndexError: The collection has no index.
        """
        match = {"multi_match": {"query": query, "fields": ["title", "text"]}}
        answer = self._ask(collection, "_search", {"query": match, "size": top_k})
        try:
            return [_document(one) for one in answer["hits"]["hits"]]
        except (KeyError, TypeError) as error:
            raise ApiNotJsonError(f"{self._url} answers a search with something else: no {error}") from error

    def _ask(self, collection: str, what: str, body: Mapping[str, Any]) -> dict[str, Any]:
        index, trouble = f"{self._prefix}{collection}", ""
        for pause in (*self._pauses, None):
            try:
                response = self._client.post(f"{self._url}/{index}/{what}", json=body)
                status = response.status_code
                if status in (401, 403):
                    raise ApiRefusedError(f"{self._url} answers {status}: check the key")
                if status == 404:
                    raise NoIndexError(f"{self._url} has no index {index}: make it, or correct indexPrefix")
                if status < 500 and status not in _PASSING:
                    return _object(response, self._url)
                trouble = f"answers {status}"
            except httpx.TransportError as error:
                trouble = f"does not answer: {error or type(error).__name__}"
            if pause is not None:
                self._sleep(pause)
        raise ApiUnavailableError(f"{self._url} {trouble}")


def _object(response: httpx.Response, url: str) -> dict[str, Any]:
    try:
        found = response.json()
    except ValueError:
        found = None
    if response.status_code >= 400 or not isinstance(found, dict):
        raise ApiNotJsonError(f"{url} answers {response.status_code} with something that is no search's result")
    return found


def _document(hit: Mapping[str, Any]) -> Document:
    source = hit["_source"]
    return Document(id=str(hit["_id"]), title=str(source.get("title") or ""), text=str(source["text"]))
