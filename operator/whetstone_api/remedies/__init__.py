"""What to do about each reason of the vocabulary, by the group that it has there."""

from collections.abc import Mapping
from typing import Final

from whetstone_api.remedies import benchmarkrun, every_kind, loratrainingjob, modelserver
from whetstone_api.remedies.remedy import Remedy
from whetstone_api.vocabulary import Reason

REMEDIES: Final[Mapping[Reason, Remedy]] = {
    **every_kind.REMEDIES,
    **modelserver.REMEDIES,
    **loratrainingjob.REMEDIES,
    **benchmarkrun.REMEDIES,
}
