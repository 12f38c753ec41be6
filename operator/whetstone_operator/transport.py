"""Requests to the API server: credentials, connections, and what is tried again.

Three refusals are answered here, because the request was not carried out. A token that is not valid any more is read
again, as the kubelet writes another one into its file in time. A server that is busy says when to come back. And one
that has started anew knows roles a moment later than it answers.
"""

import asyncio
import itertools
import json
import logging
import math
import os
import re
from collections.abc import AsyncIterator, Callable
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio import client, config

from whetstone_operator.metrics import KUBE_REQUESTS

logger = logging.getLogger(__name__)
_TIMEOUT_SECONDS: Final = 30
_BREAKS: Final = (OSError, TimeoutError, aiohttp.ClientError, client.ApiException, ValueError)
_PROXIES: Final = {"https_proxy", "all_proxy"}
_TRIES: Final = 5
_LONGEST_WISH_SECONDS: Final = 30.0
_SETTLING_SECONDS: Final = 15.0
"""How long after a connection was lost a refusal for want of rights is not believed."""
_SETTLING_PAUSE_SECONDS: Final = 1.0
_NO_RIGHT: Final = re.compile(r'User "[^"]*" cannot \w+ (resource|path) ')
"""What the API server says when no role grants something: quotas and policies of admission say other things."""


class KubeError(Exception):
    """The API server refused or failed.

    Args:
        status: HTTP status; 0 when no answer came.
        message: The server's own words.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message

    @property
    def refused(self) -> bool:
        """Whether the request itself is wrong, so that sending it again changes nothing."""
        return self.status in (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY)


class PlainClient(client.ApiClient):
    """The API client for bodies that are JSON already: it would walk through each of them in search of models."""

    def sanitize_for_serialization(self, obj: Any) -> Any:
        """Return it as it is."""
        return obj


class Transport:
    """Sends requests.

    Args:
        api: The client with its connection pool; `close` closes it.
        renew: Reads the credentials again; None where they cannot change.
        hear: Takes the date of every answer.
    """

    def __init__(
        self,
        api: Any,
        renew: Callable[[], None] | None = None,
        *,
        hear: Callable[[str | None], None] = lambda _: None,
    ) -> None:
        self._api = api
        self._renew = renew
        self._lost_at = -math.inf
        self._hear = hear

    @classmethod
    async def connect(
        cls, kubeconfig: Path | None = None, *, hear: Callable[[str | None], None] = lambda _: None
    ) -> Self:
        """Return a transport.

        Args:
            kubeconfig: File whose current context is used; by default the pod's own cluster, else KUBECONFIG.
            hear: Takes the date of every answer.
        """
        configuration = client.Configuration()
        # Watches last, and with many namespaces there are more of them than the client's usual limit.
        configuration.connection_pool_maxsize = 0
        if not _PROXIES & {name.lower() for name in os.environ}:
            # With it, aiohttp looks for ~/.netrc before every request, in a thread.
            configuration.client_session_kwargs = {"trust_env": False}
        renew = None
        if kubeconfig is not None:
            await config.load_kube_config(config_file=str(kubeconfig), client_configuration=configuration)
        elif "KUBECONFIG" not in os.environ and "KUBERNETES_SERVICE_HOST" in os.environ:
            renew = partial(config.load_incluster_config, client_configuration=configuration)
            renew()
        else:
            await config.load_kube_config(client_configuration=configuration)
        return cls(PlainClient(configuration), renew, hear=hear)

    async def close(self) -> None:
        """Close all connections."""
        await self._api.close()

    async def request(self, method: str, path: str, **options: Any) -> bytes:
        """Send a request and return the body of the answer.

        Args:
            method: HTTP method.
            path: Path of the URL.
            options: As for `_send`.

        Raises:
            KubeError: The API server refused or failed.
        """
        answer = await self._send(method, path, **options)
        try:
            data: bytes = await answer.read()
        except _BREAKS as error:
            raise self._no_answer(error) from error
        return data

    async def lines(self, path: str, *, query: dict[str, Any], within: aiohttp.ClientTimeout) -> AsyncIterator[bytes]:
        """Get something that goes on for long, and yield its lines until the API server ends it.

        Raises:
            KubeError: As `request`, also when the connection breaks off.
        """
        answer = await self._send("GET", path, query=query, within=within)
        try:
            async for line in answer.response.content:
                yield line
        except _BREAKS as error:
            raise self._no_answer(error) from error
        finally:
            answer.response.close()

    async def _send(self, method: str, path: str, **options: Any) -> Any:
        """Return the answer to a request, its body not read yet."""
        for number in itertools.count(1):
            answer = await self._try(method, path, **options)
            if answer.status < HTTPStatus.BAD_REQUEST:
                break
            if answer.status == HTTPStatus.UNAUTHORIZED and number == 1 and self._renew is not None:
                logger.info("the API server does not know the token any more; it is read again")
                self._renew()
                continue
            message = _message(await answer.read())
            pause = _wish(answer) if number < _TRIES else None
            if answer.status == HTTPStatus.FORBIDDEN and _NO_RIGHT.search(message) and self._is_settling():
                pause = _SETTLING_PAUSE_SECONDS
            if pause is None:
                raise KubeError(answer.status, message)
            await asyncio.sleep(pause)
        return answer

    def _is_settling(self) -> bool:
        return asyncio.get_running_loop().time() < self._lost_at + _SETTLING_SECONDS

    def _no_answer(self, error: BaseException) -> KubeError:
        self._lost_at = asyncio.get_running_loop().time()
        return KubeError(0, f"no answer from the API server: {error or type(error).__name__}")

    async def _try(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, Any] | None = None,
        body: dict[str, Any] | None = None,
        content_type: str = "application/json",
        within: Any = _TIMEOUT_SECONDS,
    ) -> Any:
        filled = {name: value for name, value in (query or {}).items() if value is not None}
        serialized = await self._api.param_serialize(
            method=method,
            resource_path=path + (f"?{urlencode(filled)}" if filled else ""),
            header_params={"Accept": "application/json, */*", "Content-Type": content_type},
            body=body,
            auth_settings=["BearerToken"],
        )
        try:
            answer = await self._api.call_api(*serialized, _request_timeout=within)
            if answer.status >= HTTPStatus.BAD_REQUEST:
                await answer.read()
        except _BREAKS as error:
            KUBE_REQUESTS.labels(verb=method, code="none").inc()
            raise self._no_answer(error) from error
        KUBE_REQUESTS.labels(verb=method, code=str(answer.status)).inc()
        self._hear(answer.headers.get("Date"))
        return answer


def _wish(answer: Any) -> float | None:
    """Return the seconds after which a busy server wants to be asked again; None where it does not say."""
    if answer.status != HTTPStatus.TOO_MANY_REQUESTS:
        return None
    try:
        return min(float(answer.headers["Retry-After"]), _LONGEST_WISH_SECONDS)
    except (KeyError, ValueError):
        return None


def _message(data: bytes) -> str:
    """Return the words of an error answer, which is a `Status` object or plain text."""
    text = data.decode(errors="replace")
    try:
        return str(json.loads(text).get("message") or text)
    except (ValueError, AttributeError):
        return text[:1024]
