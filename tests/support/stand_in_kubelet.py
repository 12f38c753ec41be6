"""A node that holds no pod and hands out logs: the API server asks it as it asks any kubelet."""

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs, urlsplit

from integration.api import Api
from whetstone_dev.controlplane import ControlPlane

Logs = Callable[[str, str, bool], str]
"""The log of a pod's container, or of the process before it."""


@contextmanager
def node_with_logs(plane: ControlPlane, api: Api, name: str, logs: Logs) -> Iterator[None]:
    """Register a node whose kubelet answers with these logs.

    Args:
        plane: Its cluster.
        api: The administrator's client.
        name: The node's name.
        logs: What it answers.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            place = urlsplit(self.path)
            _, _, _, pod, container = place.path.split("/")
            text = logs(pod, container, "previous" in parse_qs(place.query)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    certificate, key = plane.pki.leaf("stand-in-kubelet", subject="/CN=kubelet", names=["IP:127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_address[1]
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }
    api.raw("POST", "/api/v1/nodes", {"metadata": {"name": name}, "status": status})
    try:
        yield
    finally:
        api.raw("DELETE", f"/api/v1/nodes/{name}")
        server.shutdown()
        server.server_close()
