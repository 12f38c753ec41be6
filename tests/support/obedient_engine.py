"""Takes the place of vLLM in an engine's container: real guard, real server, and a model that does as it is told.

The instruction of a task holds a line `Run: COMMAND`; the model's answer is that command, in the words of the agent
that asks (our own, or `terminus-2` with its JSON), and after what came of it, that it is done. So every run of a task
goes the same way, and a disturbed run can be compared with an undisturbed one to the token. A conversation that has a
word of the file `hold` beside the model's folder waits until the file no longer says so. Adapters that the file
`forgotten` there names are gone, and stay so however often they are loaded.

It lies in a volume as the package `vllm`, where `python3 -m vllm.entrypoints.cli.main serve` finds it first.
"""

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

import uvicorn
from support.fake_vllm import BASE, FakeVllm
from whetstone_server.guard.whetstone_guard import Guard
from whetstone_server.guard.whetstone_guard.asgi import Receive, Scope, Send, send_json

WAITING = "obedient:conversations_waiting"
"""Series of the conversations that wait."""
_CONTEXT_TOKENS = 4096
_LOOK_SECONDS = 0.1
_TYPED = "typed-it"


def answer(messages: list[dict[str, str]]) -> str:
    """Return what the model says next."""
    text = "\n".join(message["content"] for message in messages)
    command = re.search(r"^Run: (.+)$", text, re.MULTILINE)
    if command is None:
        return "OK"
    if '"keystrokes"' not in messages[0]["content"]:
        return "DONE" if any(one["role"] == "assistant" for one in messages) else f"```bash\n{command[1]}\n```"
    seen = any(re.search(rf"^{_TYPED}$", message["content"], re.MULTILINE) for message in messages[1:])
    keys = {"keystrokes": f"{command[1]}; echo {_TYPED}\n" if len(messages) == 1 else "", "duration": 0.5}
    return json.dumps({"analysis": "", "plan": "", "commands": [] if seen else [keys], "task_complete": seen})


class Obedient(FakeVllm):
    """An engine with that model.

    Args:
        folder: Where the files `hold` and `forgotten` are.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(Path("/unused"))
        self._folder = folder
        self._waiting = 0

    def restart(self) -> None:
        """Begin with the guard as the engine's container has it."""
        super().restart()
        self.guard = Guard(self._app, mixes=True)

    async def _models(self, body: dict[str, Any], send: Send) -> None:
        cards = [{"id": BASE, "object": "model", "root": sys.argv[2], "parent": None, "max_model_len": _CONTEXT_TOKENS}]
        cards += [{"id": name, "object": "model", "root": root, "parent": BASE} for name, root in self.adapters.items()]
        await send_json(send, {"object": "list", "data": cards})

    async def _metrics(self, body: dict[str, Any], send: Send) -> None:
        # Not one of vLLM's series: a sidecar would take an engine for stuck that says it works and generates nothing.
        labels = f'{{engine="0",model_name="{BASE}"}}'
        series = {"vllm:generation_tokens_total": self.generated, "vllm:num_requests_running": 0}
        text = "".join(f"{name}{labels} {value:.1f}\n" for name, value in {**series, WAITING: self._waiting}.items())
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": text.encode()})

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        for name in self._words("forgotten"):
            self.adapters.pop(name, None)
        await super()._app(scope, receive, send)

    async def _chat(self, body: dict[str, Any], send: Send) -> None:
        model, messages = body["model"], body["messages"]
        if not await self._serves(model, send):
            return
        text = "\n".join(message["content"] for message in messages)
        self._waiting += 1
        try:
            while any(word in text for word in self._words("hold")):  # noqa: ASYNC110 - what it waits for is a file
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            self._waiting -= 1
        said = answer(messages)
        usage = {"prompt_tokens": len(text) // 4, "completion_tokens": len(said) // 4}
        choice = {"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
        whole = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": model, "choices": [choice]}
        await send_json(send, {**whole, "usage": {**usage, "total_tokens": sum(usage.values())}})

    def _words(self, file: str) -> list[str]:
        try:
            return (self._folder / file).read_text().split()
        except FileNotFoundError:
            return []


if __name__ == "__main__":
    engine = Obedient(Path(sys.argv[2]).parent)
    uvicorn.run(engine, host="0.0.0.0", port=8000, lifespan="off", log_config=None)
