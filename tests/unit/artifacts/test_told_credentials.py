"""A place that repeats in its refusal what it was sent: the message of ours does not pass it on."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web
from support.canaries import canary, seen
from support.place_servers import COMMIT, Served, running
from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.sources.credentials import Credentials
from whetstone_artifacts.sources.fetch import fetch_remote_adapter, open_place
from whetstone_artifacts.sources.stores import HttpsStore

DIGEST = "sha256:" + "0" * 64
TOKEN, USER, PASSWORD, KEY = (canary(name) for name in ("token", "user", "password", "key"))
PLANTED = {"token": TOKEN, "password": PASSWORD, "key": KEY}
PLANTED["basic"] = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


@pytest.fixture(params=[400, 401, 500])
def telling(request: pytest.FixtureRequest) -> Iterator[Served]:
    """A server that refuses everything, in the words of every protocol, and repeats the request's login."""
    status: int = request.param

    async def refuse(asked: web.Request) -> web.Response:
        told = f"refused: {asked.headers.get('Authorization')}"
        served.asked.append(told)  # type: ignore[arg-type]
        body = json.dumps({"error": told, "errors": [{"code": "DENIED", "message": told}]})
        headers = {"X-Error-Message": told, "X-Error-Code": "GatedRepo", "Content-Type": "application/json"}
        # The hub's client writes the reason of every answer into its log, with which nothing can be done here.
        reason = None if asked.path.startswith("/api/") else told
        return web.Response(status=status, text=body, headers=headers, reason=reason)

    app, served = web.Application(), Served()
    app.router.add_route("*", "/{path:.*}", refuse)
    with running(app, served) as one:
        yield one


def places(served: Served) -> dict[str, tuple[str, Credentials]]:
    """Return a place of each scheme on the server, with what its Secret holds."""
    host = served.url.removeprefix("http://")
    keys = {"AWS_ACCESS_KEY_ID": USER, "AWS_SECRET_ACCESS_KEY": KEY, "AWS_ENDPOINT_URL": served.url}
    return {
        "hub": (f"hf://team/tools@{COMMIT}", Credentials(values={"HF_ENDPOINT": served.url, "HF_TOKEN": TOKEN})),
        "web": (f"{served.url}/a", Credentials(values={"token": TOKEN})),
        "s3": ("s3://bucket/a", Credentials(values=keys)),
        "oci": (
            f"oci://{host}/team/tools@{DIGEST}",
            Credentials(values={"username": USER, "password": PASSWORD, "plainHTTP": "true"}),
        ),
    }


@pytest.mark.parametrize("name", ["hub", "web", "s3", "oci"])
def test_login_is_not_in_the_message_or_the_log(
    telling: Served, tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    uri, credentials = places(telling)[name]

    # The server has no certificate, which open_place would ask for.
    remote = HttpsStore(uri, credentials) if name == "web" else open_place(uri, credentials)

    with pytest.raises(ArtifactError) as caught, caplog.at_level("INFO"):
        fetch_remote_adapter(remote, tmp_path / "t", DIGEST)

    texts = {"the message": str(caught.value), "the log": caplog.text, "the credentials": repr(credentials)}
    assert seen(PLANTED, texts) == []
