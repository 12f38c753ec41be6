"""The process whose speed is compared: an engine that answers at once, with or without the guard around it.

`python -m whetstone_bench.engine_app PORT TOKEN_FILE` without the guard; with `guarded` as third argument, with it.
"""

import json
import sys
from pathlib import Path
from typing import Any

import uvicorn
from whetstone_server.guard.whetstone_guard import Guard

CHUNKS = 64
_CARD = {"id": "chatcmpl-1", "created": 1, "model": "tiny--00000000"}
_CHUNK = {**_CARD, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": "word "}}]}
_EVENT = f"data: {json.dumps(_CHUNK, separators=(',', ':'))}\n\n".encode()
_MESSAGE = {"role": "assistant", "content": "word " * CHUNKS}
_ANSWER = json.dumps(
    {
        **_CARD,
        "object": "chat.completion",
        "choices": [{"index": 0, "message": _MESSAGE, "finish_reason": "length"}],
        "usage": {"prompt_tokens": 200, "completion_tokens": CHUNKS, "total_tokens": 200 + CHUNKS},
    }
).encode()


async def engine(_: Any, receive: Any, send: Any) -> None:
    """Answer a chat request as an engine does: parse it, then one document or `CHUNKS` events."""
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    request = json.loads(body or b"{}")
    if not request.get("stream"):
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(_ANSWER)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": _ANSWER})
        return
    headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for _ in range(CHUNKS):
        await send({"type": "http.response.body", "body": _EVENT, "more_body": True})
    await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})


def main(arguments: list[str]) -> None:
    """Serve until the process is ended."""
    app = Guard(engine, Path(arguments[1])) if "guarded" in arguments else engine
    uvicorn.run(app, host="127.0.0.1", port=int(arguments[0]), lifespan="off", log_level="error", access_log=False)


if __name__ == "__main__":
    main(sys.argv[1:])
