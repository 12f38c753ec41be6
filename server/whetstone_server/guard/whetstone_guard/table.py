"""The engine's own route table, so that a test can tell when a new engine has a route that nobody decided about."""

from typing import Any

from .asgi import Scope

ANY_METHOD = "*"
WEBSOCKET = "WEBSOCKET"


def route_table(scope: Scope) -> list[list[str]]:
    """Return method and path of every route of the application that serves a request, sorted.

    A mount and a route without methods count as one route with the method `*`; a websocket has the method `WEBSOCKET`.

    Args:
        scope: The request's scope; Starlette puts its application there.
    """
    routes = getattr(scope.get("app"), "routes", ())
    return sorted([method, str(getattr(route, "path", ""))] for route in routes for method in _methods(route))


def _methods(route: Any) -> list[str]:
    if "WebSocket" in type(route).__name__:
        return [WEBSOCKET]
    return sorted(getattr(route, "methods", None) or {ANY_METHOD})
