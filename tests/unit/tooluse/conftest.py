"""A small world with documents and a real API, and environments on it."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from whetstone_agent.tooluse.agents import ScriptedAgent, saying
from whetstone_agent.tooluse.api_client import ApiClient
from whetstone_agent.tooluse.env import EnvironmentSettings, ToolUseEnv
from whetstone_agent.tooluse.instances import check_instances
from whetstone_agent.tooluse.judges import Judge
from whetstone_agent.tooluse.world import World
from whetstone_dev.places import CHECKOUT

HANDBOOK = [
    {"id": "leave", "title": "Annual leave", "text": "Every employee has 30 days of annual leave a year."},
    {"id": "travel", "title": "Travel", "text": "Trains are booked by the team Harbour."},
    {"id": "badge", "title": "Badges", "text": "Lost badges are replaced at the front desk."},
]
EMPLOYEES = {"e1": {"name": "Ada Quill", "email": "ada@fern.example", "team": "Harbour"}}
OPENAPI = """
openapi: 3.1.0
info: {title: Fern, version: "1"}
paths:
  /employees/{id}:
    get:
      operationId: getEmployee
      tags: [employees]
      summary: One employee.
      parameters: [{name: id, in: path, required: true, schema: {$ref: "#/components/schemas/Id"}}]
      responses:
        "200": {content: {application/json: {schema: {$ref: "#/components/schemas/Employee"}}}}
  /employees:
    get:
      operationId: listEmployees
      tags: [employees]
      summary: Employees of a team.
      parameters:
        - {name: team, in: query, schema: {type: string, enum: [Harbour, Meadow]}}
        - {name: limit, in: query, schema: {type: integer, minimum: 1}}
      responses:
        "200": {content: {application/json: {schema: {type: array}}}}
  /tickets:
    post:
      operationId: openTicket
      tags: [tickets]
      summary: Open a ticket.
      requestBody:
        content:
          application/json:
            schema: {type: object, required: [title], properties: {title: {type: string}}}
      responses:
        "201": {content: {application/json: {schema: {type: object, properties: {number: {type: integer}}}}}}
components:
  schemas:
    Id: {type: string, pattern: "^e[0-9]+$"}
    Employee: {type: object, properties: {name: {type: string}, email: {type: string}, team: {type: string}}}
"""
KEY = "Bearer open-sesame"


@dataclass
class Service:
    """The API; `broken` says what it does instead of its work."""

    url: str = ""
    broken: str | None = None
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)


class Handler(BaseHTTPRequestHandler):
    service: Service

    def log_message(self, *args: Any) -> None: ...

    def do_GET(self) -> None:
        self._answer("")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers["Content-Length"])).decode())

    def _answer(self, body: str) -> None:
        self.service.requests.append((self.command, self.path, body))
        match self.service.broken:
            case "slow":
                self.service.released.wait(30)
                return self._send(200, "{}")
            case "html":
                return self._send(200, "<html>sign in</html>", "text/html")
            case "failing":
                return self._send(500, "{}")
        if self.headers.get("Authorization") != KEY:
            return self._send(401, "{}")
        place = urlsplit(self.path)
        parts = [unquote(part) for part in place.path.strip("/").split("/")]
        if parts[0] == "tickets":
            return self._send(201, json.dumps({"number": 7, **json.loads(body)}))
        if len(parts) == 2:
            found = EMPLOYEES.get(parts[1])
            return self._send(200, json.dumps(found)) if found else self._send(404, '{"detail": "no such employee"}')
        team = parse_qs(place.query).get("team", [None])[0]
        return self._send(200, json.dumps([one for one in EMPLOYEES.values() if team in (None, one["team"])]))

    def _send(self, status: int, body: str, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())


@pytest.fixture
def service() -> Iterator[Service]:
    """The API, running."""
    found = Service()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"service": found}))
    server.daemon_threads = True
    found.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield found
    found.released.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def world_folder(tmp_path: Path) -> Path:
    """Files of the world."""
    folder = tmp_path / "world"
    (folder / "collections").mkdir(parents=True)
    (folder / "collections" / "handbook.jsonl").write_text("".join(json.dumps(one) + "\n" for one in HANDBOOK))
    (folder / "openapi.yaml").write_text(OPENAPI)
    return folder


@pytest.fixture
def world(world_folder: Path, tmp_path: Path) -> World:
    """The world, read."""
    return World.open(world_folder, tmp_path / "cache")


SEARCH = {"tool": "retrieve_documents", "args": {"collection": "handbook", "query": "who books trains"}}
ASK = {"tool": "getEmployee", "args": {"id": "e1"}, "field": "email"}


def instance(**fields: Any) -> dict[str, Any]:
    """One instance as JSON: its answer takes a search and a call."""
    return {
        "id": "i1",
        "question": "What is the email of the employee who books trains?",
        "answers": ["ada@fern.example"],
        "order": "rag_before_api",
        "trajectory": [{**SEARCH, "documents": ["travel"]}, ASK],
        **fields,
    }


type MakeEnv = Callable[..., ToolUseEnv]


@pytest.fixture
def make_env(world: World, service: Service) -> Iterator[MakeEnv]:
    """Make an environment with one instance that runs; keyword arguments are the instance's fields."""
    clients = []

    def make(
        settings: EnvironmentSettings | None = None,
        *,
        key: str = KEY,
        judge: Judge | None = None,
        witness: Judge | None = None,
        **fields: Any,
    ) -> ToolUseEnv:
        instances = check_instances([instance(**fields)], "train.json")
        world.check(instances, "train.json")
        headers = {"Authorization": key}
        api = ApiClient(service.url, headers=headers, timeout_seconds=1.0, pauses_seconds=(1.0,), sleep=lambda _: None)
        clients.append(api)
        env = ToolUseEnv(instances, world, api=api, settings=settings, judge=judge, witness=witness)
        env.reset(seed=1)
        return env

    yield make
    for client in clients:
        client.__exit__()


def call(tool: str, **args: Any) -> str:
    """An action as text."""
    return json.dumps({"tool_name": tool, "args": args})


def scripted(*texts: str) -> ScriptedAgent:
    """An agent that says these texts one after the other, the last one for ever."""
    return ScriptedAgent(saying(texts))


def native(tool: str, **args: Any) -> dict[str, Any]:
    """A model's reply that calls a tool."""
    function = {"name": tool, "arguments": json.dumps(args)}
    return {"role": "assistant", "content": "", "tool_calls": [{"id": "x", "type": "function", "function": function}]}


COMPANY = CHECKOUT / "examples" / "tooluse" / "company"
COMPANY_KEY = "open-sesame"


@pytest.fixture(scope="session")
def company_url() -> Iterator[str]:
    """The service of the company that ships, run as users run it."""
    command = [sys.executable, str(COMPANY / "service.py"), "--port", "0"]
    environment = {**os.environ, "COMPANY_KEY": COMPANY_KEY}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()
