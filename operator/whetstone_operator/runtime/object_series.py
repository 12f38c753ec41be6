"""Prometheus series of live objects, read from their statuses; they go away with the object."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from prometheus_client import REGISTRY
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from whetstone_api.vocabulary import ConditionType

from whetstone_operator.kinds import BENCHMARK_RUN, MODEL_SERVER, TRAINING_JOB, Key, kind_of_key
from whetstone_operator.runtime.clock import from_rfc3339

Status = Mapping[str, Any]
Samples = Iterator[tuple[tuple[str, ...], float]]
FIGURES: Final = {
    "mean": ("mean",),
    "strict_mean": ("strictMean",),
    "interval_low": ("interval", "low"),
    "interval_high": ("interval", "high"),
    "coverage": ("coverage",),
}
"""Figures of a benchmark by the names of its series' label, and where the results have them."""


def _conditions(key: Key, status: Status) -> Samples:
    for one in status.get("conditions") or []:
        yield (kind_of_key(key).name, key.namespace, key.name, one["type"], one["status"]), 1.0


def _progress(key: Key, status: Status) -> Samples:
    percent = (status.get("progress") or {}).get("percent")
    if key.plural == TRAINING_JOB.plural and percent is not None:
        yield (key.namespace, key.name), float(percent) / 100


def _figures(key: Key, status: Status) -> Samples:
    results = status.get("results")
    if key.plural != BENCHMARK_RUN.plural or not results:
        return
    served = (status.get("target") or {}).get("servedName", "")
    shown = {name: path for name, path in FIGURES.items() if name == "coverage" or not _is_invalid(status)}
    for figure, path in shown.items():
        value: Any = results
        for part in path:
            value = (value or {}).get(part)
        if value is not None:
            yield (key.namespace, key.name, served, figure), float(value)


def _is_invalid(status: Status) -> bool:
    """Return whether a run's figures are no score."""
    conditions = status.get("conditions") or []
    return any(one["type"] == ConditionType.VALID and one["status"] == "False" for one in conditions)


def _finished(key: Key, status: Status) -> Samples:
    if key.plural == BENCHMARK_RUN.plural and status.get("results") and status.get("finishedAt"):
        yield (key.namespace, key.name), from_rfc3339(status["finishedAt"]).timestamp()


def _targets(key: Key, status: Status) -> Samples:
    if key.plural == MODEL_SERVER.plural:
        for alias in status.get("aliases") or []:
            yield (key.namespace, key.name, alias["name"], alias["servedName"]), 1.0


def _moves(key: Key, status: Status) -> Samples:
    if key.plural != MODEL_SERVER.plural:
        return
    for alias in status.get("aliases") or []:
        history = alias.get("history") or []
        if history:
            labels = (key.namespace, key.name, alias["name"], history[0]["reason"])
            yield labels, from_rfc3339(history[0]["time"]).timestamp()


_FAMILIES: Final[tuple[tuple[str, str, tuple[str, ...], Callable[[Key, Status], Samples]], ...]] = (
    (
        "whetstone_status_condition",
        "1 for the status (True, False, Unknown) that a condition has.",
        ("kind", "namespace", "name", "type", "status"),
        _conditions,
    ),
    (
        "whetstone_loratrainingjob_progress_ratio",
        "Share of its steps that a training has done.",
        ("namespace", "name"),
        _progress,
    ),
    (
        "whetstone_benchmarkrun_score",
        "Figures of a run that has its result, and what was measured.",
        ("namespace", "name", "served", "figure"),
        _figures,
    ),
    (
        "whetstone_benchmarkrun_finished_timestamp_seconds",
        "When a run with a result ended.",
        ("namespace", "name"),
        _finished,
    ),
    (
        "whetstone_alias_target",
        "1 for the version that an alias serves; of several, the heaviest.",
        ("namespace", "server", "alias", "served"),
        _targets,
    ),
    (
        "whetstone_alias_moved_timestamp_seconds",
        "When an alias moved last, and why.",
        ("namespace", "server", "alias", "reason"),
        _moves,
    ),
)


class ObjectSeries(Collector):
    """Keeps the latest status of every object that the operator has looked at."""

    def __init__(self) -> None:
        self._statuses: dict[Key, Status] = {}

    def show(self, key: Key, status: Status) -> None:
        """Take over an object's status."""
        self._statuses[key] = status

    def forget(self, key: Key) -> None:
        """Drop an object that is gone."""
        self._statuses.pop(key, None)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the series."""
        statuses = list(self._statuses.items())
        for name, text, labels, samples in _FAMILIES:
            family = GaugeMetricFamily(name, text, labels=labels)
            for key, status in statuses:
                for values, value in samples(key, status):
                    family.add_metric(values, value)
            yield family


OBJECTS = ObjectSeries()
REGISTRY.register(OBJECTS)
