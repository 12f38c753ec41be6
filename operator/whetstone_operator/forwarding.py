"""An operator that stands by hands what pods send to the one that leads: its Service reaches both."""

from http import HTTPStatus

import aiohttp
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from whetstone_operator.runtime.leadership import Leadership

FORWARDED = "X-Whetstone-Forwarded"
_HEADERS = ("Authorization", "Content-Type")
_TIMEOUT = aiohttp.ClientTimeout(total=10)


def forward_to_leader(leadership: Leadership, session: aiohttp.ClientSession) -> Middleware:
    """Return a middleware that answers posts itself only on the operator that leads.

    Args:
        leadership: Who leads.
        session: Asks the other operator.
    """

    @web.middleware
    async def forward(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.method != "POST" or leadership.leading:
            return await handler(request)
        url = leadership.leader_url
        if url is None or FORWARDED in request.headers:
            return _unavailable("no operator leads at the moment")
        headers = {name: request.headers[name] for name in _HEADERS if name in request.headers} | {FORWARDED: "1"}
        body = await request.read()
        try:
            async with session.post(url + request.path, data=body, headers=headers, timeout=_TIMEOUT) as answer:
                text, kind = await answer.read(), answer.headers.get("Content-Type", "text/plain")
                return web.Response(status=answer.status, body=text, headers={"Content-Type": kind})
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return _unavailable(f"the operator that leads does not answer: {error or type(error).__name__}")

    return forward


def _unavailable(text: str) -> web.Response:
    return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE, text=text + "\n", headers={"Retry-After": "2"})
