"""Whether the API server knows our kinds: their definitions may come later than the operator, or be deleted."""

import asyncio
import logging

from whetstone_operator.kinds import OUR_KINDS
from whetstone_operator.kube import Kube, KubeError

logger = logging.getLogger(__name__)
LOOK_AGAIN_SECONDS = 5.0


class DefinitionsGoneError(Exception):
    """The API server does not know our kinds any more; the message names them."""


async def missing_definitions(kube: Kube) -> list[str]:
    """Return the names of our kinds that the API server does not know.

    Raises:
        KubeError: It does not answer.
    """
    return [kind.name for kind in OUR_KINDS if not await kube.serves(kind)]


async def wait_for_definitions(kube: Kube) -> None:
    """Wait until the API server knows all our kinds."""
    told = ""
    while problem := await _problem(kube):
        if problem != told:
            logger.warning("%s; waiting", problem)
            told = problem
        await asyncio.sleep(LOOK_AGAIN_SECONDS)


async def _problem(kube: Kube) -> str:
    try:
        missing = await missing_definitions(kube)
    except KubeError as error:
        return str(error)
    return f"the API server does not know {', '.join(missing)}: install the chart whetstone-crds" if missing else ""
