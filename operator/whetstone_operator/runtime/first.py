"""Work of which the first part that ends is the end of the others."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def first_of(*works: Coroutine[Any, Any, Any]) -> int:
    """Do all at a time until one ends; return which, from 0, once the others are cancelled and have ended.

    Its error, if it ended with one, is raised. Of several that end at once, the one that is named first counts.
    """
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    ended = [number for number, task in enumerate(tasks) if not task.cancelled()]
    for number in ended:
        tasks[number].result()
    return ended[0]
