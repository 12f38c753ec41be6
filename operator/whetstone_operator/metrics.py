"""Prometheus series of the operator, in the shape of controller-runtime's.

Counters and histograms never carry object names; gauges of live objects do and go away with them.
"""

from prometheus_client import Counter, Gauge, Histogram

RECONCILES = Counter("whetstone_reconcile", "Reconciles by outcome.", ["controller", "result"])
RECONCILE_SECONDS = Histogram("whetstone_reconcile_duration_seconds", "Seconds of a reconcile.", ["controller"])
QUEUE_DEPTH = Gauge("whetstone_workqueue_depth", "Keys that wait for a worker.")
QUEUE_SECONDS = Histogram("whetstone_workqueue_queue_duration_seconds", "Seconds that a key waited for a worker.")
QUEUE_RETRIES = Counter("whetstone_workqueue_retries", "Keys put back with a growing pause.")
KUBE_REQUESTS = Counter("whetstone_kube_requests", "Requests to the API server.", ["verb", "code"])
REPORTS = Counter("whetstone_reports", "Reports of pods by answer.", ["code"])
LEADER = Gauge("whetstone_leader", "1 while this operator is the one at work.")
NAMESPACE_REFUSED = Gauge(
    "whetstone_namespace_refused",
    "1 for a namespace that this operator should work on, and on which another installation does.",
    ["namespace", "operator"],
)
SERVER_READY = Gauge("whetstone_modelserver_ready", "1 while a ModelServer is Ready.", ["namespace", "name"])
ADAPTER_LOADED = Gauge(
    "whetstone_adapter_loaded_replicas", "Replicas that hold an adapter.", ["namespace", "server", "adapter"]
)
ADAPTER_EFFECTIVE = Gauge(
    "whetstone_adapter_effective_replicas",
    "Replicas on which an adapter changes the output as recorded.",
    ["namespace", "server", "adapter"],
)
PUBLISH_TO_EFFECTIVE = Histogram(
    "whetstone_publish_to_effective_seconds",
    "Seconds from the publication of an adapter until it was effective on every replica.",
    buckets=(0.25, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800),
)
ALIAS_MOVES = Counter("whetstone_alias_moves", "Moves of aliases by cause.", ["cause"])
RUN_TRIALS = Gauge(
    "whetstone_benchmarkrun_trials",
    "Trials of a BenchmarkRun at work by state: passed, failed, void, running, waiting.",
    ["namespace", "name", "state"],
)
RUN_SECONDS_LEFT = Gauge(
    "whetstone_benchmarkrun_eta_seconds",
    "Seconds that a BenchmarkRun takes on, at its pace so far.",
    ["namespace", "name"],
)
