"""Takes the place of vLLM in an engine's container: real guard, real server, no model.

It lies in a volume as the package `vllm`, where `python3 -m vllm.entrypoints.cli.main serve` finds it first, and takes
little memory, so that tests of placement can have replicas that the machine has no room for.
"""

import sys
from typing import Any

import uvicorn
from whetstone_guard import Guard
from whetstone_guard.asgi import send_json


async def answer(scope: Any, receive: Any, send: Any) -> None:
    """Be healthy, list one model, and know nothing else."""
    name = next(one.partition("=")[2] for one in sys.argv if one.startswith("--served-model-name="))
    card = {"id": name, "object": "model", "root": sys.argv[2], "parent": None}
    answers = {"/health": {}, "/v1/models": {"object": "list", "data": [card]}}
    known = scope["path"] in answers
    await send_json(send, answers.get(scope["path"], {"detail": "Not Found"}), status=200 if known else 404)


if __name__ == "__main__":
    guard = Guard(answer, mixes=True)
    uvicorn.run(guard, host="0.0.0.0", port=8000, lifespan="off", log_config=None)
