"""A publication that the trainer reports before its pod has ended, so that servers load it at once.

It is a hint. The artifact is the truth: a server loads only what has the reported digest. The Job's termination message
has the last word: it replaces what was reported, and a Job that fails after all takes it back.
"""

import logging

from pydantic import ValidationError
from whetstone_api.loratrainingjob import LoRATrainingJob
from whetstone_api.training_result import PublishedAdapter

from whetstone_operator.runtime.reconcile import Work

logger = logging.getLogger(__name__)


def hear_publication(work: Work[LoRATrainingJob]) -> None:
    """Write a reported publication into the status; kept there, an operator that restarts does not unload it."""
    reported = work.context.board.get(work.key)
    if reported is None or reported.report.adapter is None:
        return
    try:
        adapter = PublishedAdapter.model_validate(reported.report.adapter)
    except ValidationError as error:
        logger.warning("%s reports a publication of another form (%d errors)", work.key, error.error_count())
        return
    wanted = work.resource.spec.output.adapter.uri
    if adapter.uri != wanted:
        logger.warning("%s reports a publication at %s, not at %s; it is ignored", work.key, adapter.uri, wanted)
        return
    work.status["adapter"] = adapter.to_wire()


def withdraw_publication(work: Work[LoRATrainingJob]) -> None:
    """Take back what was reported: the Job has failed, or the place holds it no longer."""
    work.status.pop("adapter", None)
