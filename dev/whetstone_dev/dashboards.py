"""The Grafana dashboards that the chart ships, as data: `make generate` writes them as JSON."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from grafana_foundation_sdk.builders import dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import DataSourceRef, VariableRefresh
from whetstone_api.generated import write_or_check

SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
_WIDTH, _HEIGHT = 12, 8


@dataclass(frozen=True, kw_only=True)
class Query:
    """A query of a panel, and what names its series in the legend."""

    expression: str
    legend: str = ""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One panel.

    Args:
        title: Its heading.
        queries: What it shows.
        unit: Grafana's name of the unit.
        numbers: Shows the latest values as numbers instead of a graph.
        description: Help behind its heading.
    """

    title: str
    queries: Sequence[Query]
    unit: str = "short"
    numbers: bool = False
    description: str = ""


@dataclass(frozen=True, kw_only=True)
class Dashboard:
    """One dashboard: its panels, and the variables that its queries use, as label of which series they are."""

    uid: str
    title: str
    variables: Sequence[tuple[str, str]]
    panels: Sequence[Panel]


def _rate(series: str, by: str, where: str = "") -> str:
    return f"sum by ({by}) (rate({series}{{{where}}}[5m]))"


def _quantile(share: str, series: str, by: str, where: str) -> str:
    return f"histogram_quantile({share}, sum by (le, {by}) (rate({series}_bucket{{{where}}}[5m])))"


_NAMESPACE = ("namespace", "label_values(whetstone_status_condition, namespace)")
_SERVED = 'namespace=~"$namespace", pod=~"$server-engine-.*"'
_SERVER = 'namespace=~"$namespace", server=~"$server"'
_TRAINING_POD = 'namespace=~"$namespace"'

FLEET = Dashboard(
    uid="whetstone-fleet",
    title="Whetstone / Fleet",
    variables=[_NAMESPACE],
    panels=[
        Panel(
            title="Objects by readiness",
            numbers=True,
            queries=[
                Query(
                    expression="sum by (kind, status) (whetstone_status_condition"
                    '{type="Ready", namespace=~"$namespace"})',
                    legend="{{kind}} Ready={{status}}",
                )
            ],
        ),
        Panel(
            title="Stalled or failed",
            description="Objects that need a change by a user; kubectl describe says which.",
            queries=[
                Query(
                    expression='whetstone_status_condition{type=~"Stalled|Failed", status="True", '
                    'namespace=~"$namespace"} or on() vector(0)',
                    legend="{{kind}} {{namespace}}/{{name}}",
                )
            ],
        ),
        Panel(
            title="Requests by version",
            unit="reqps",
            queries=[Query(expression=_rate("whetstone_requests_total", "served"), legend="{{served}}")],
        ),
        Panel(
            title="Operator at work",
            numbers=True,
            queries=[Query(expression="sum(whetstone_leader)", legend="leaders")],
        ),
        Panel(
            title="Reconciles",
            unit="ops",
            queries=[
                Query(
                    expression=_rate("whetstone_reconcile_total", "controller, result"),
                    legend="{{controller}} {{result}}",
                )
            ],
        ),
        Panel(
            title="Reconcile time, 99th percentile",
            unit="s",
            queries=[
                Query(
                    expression=_quantile("0.99", "whetstone_reconcile_duration_seconds", "controller", ""),
                    legend="{{controller}}",
                )
            ],
        ),
        Panel(
            title="Keys that wait",
            queries=[Query(expression="sum(whetstone_workqueue_depth)", legend="waiting")],
        ),
        Panel(
            title="Requests to the API server",
            unit="reqps",
            queries=[
                Query(expression=_rate("whetstone_kube_requests_total", "verb, code"), legend="{{verb}} {{code}}")
            ],
        ),
    ],
)

SERVER = Dashboard(
    uid="whetstone-server",
    title="Whetstone / Server and its adapters",
    variables=[
        _NAMESPACE,
        ("server", 'label_values(whetstone_modelserver_ready{namespace=~"$namespace"}, name)'),
    ],
    panels=[
        Panel(
            title="Aliases serve",
            numbers=True,
            queries=[Query(expression=f"whetstone_alias_target{{{_SERVER}}}", legend="{{alias}} → {{served}}")],
        ),
        Panel(
            title="Replicas on which an adapter is effective",
            queries=[
                Query(expression=f"whetstone_adapter_effective_replicas{{{_SERVER}}}", legend="{{adapter}} effective"),
                Query(expression=f"whetstone_adapter_loaded_replicas{{{_SERVER}}}", legend="{{adapter}} loaded"),
            ],
        ),
        Panel(
            title="Requests by version and status",
            unit="reqps",
            queries=[
                Query(
                    expression=_rate("whetstone_requests_total", "served, code", _SERVED), legend="{{served}} {{code}}"
                )
            ],
        ),
        Panel(
            title="Time of requests, 95th percentile",
            unit="s",
            queries=[
                Query(expression=_quantile("0.95", "whetstone_request_seconds", "served", _SERVED), legend="{{served}}")
            ],
        ),
        Panel(
            title="Time to first token, 95th percentile",
            unit="s",
            queries=[
                Query(
                    expression=_quantile("0.95", "whetstone_time_to_first_token_seconds", "served", _SERVED),
                    legend="{{served}}",
                )
            ],
        ),
        Panel(
            title="Tokens",
            unit="short",
            queries=[
                Query(expression=_rate("whetstone_tokens_total", "served, kind", _SERVED), legend="{{served}} {{kind}}")
            ],
        ),
        Panel(
            title="Requests at work and waiting",
            queries=[
                Query(expression=f"sum by (pod) (vllm:num_requests_running{{{_SERVED}}})", legend="{{pod}} running"),
                Query(expression=f"sum by (pod) (vllm:num_requests_waiting{{{_SERVED}}})", legend="{{pod}} waiting"),
            ],
        ),
        Panel(
            title="KV cache in use",
            unit="percentunit",
            queries=[Query(expression=f"max by (pod) (vllm:kv_cache_usage_perc{{{_SERVED}}})", legend="{{pod}}")],
        ),
        Panel(
            title="Publication to effect, 95th percentile over an hour",
            unit="s",
            queries=[
                Query(
                    expression="histogram_quantile(0.95, sum by (le) "
                    "(increase(whetstone_publish_to_effective_seconds_bucket[1h])))",
                    legend="all servers",
                )
            ],
        ),
        Panel(
            title="Engine processes that were started",
            queries=[Query(expression=f"max by (pod) (whetstone_engine_boots{{{_SERVED}}})", legend="{{pod}}")],
        ),
    ],
)

TRAINING = Dashboard(
    uid="whetstone-training",
    title="Whetstone / Training",
    variables=[_NAMESPACE],
    panels=[
        Panel(
            title="Progress",
            unit="percentunit",
            queries=[
                Query(expression='whetstone_loratrainingjob_progress_ratio{namespace=~"$namespace"}', legend="{{name}}")
            ],
        ),
        Panel(
            title="Loss",
            queries=[Query(expression=f"whetstone_training_loss{{{_TRAINING_POD}}}", legend="{{pod}}")],
        ),
        Panel(
            title="Learning rate",
            queries=[Query(expression=f"whetstone_training_learning_rate{{{_TRAINING_POD}}}", legend="{{pod}}")],
        ),
        Panel(
            title="Tokens a second",
            queries=[Query(expression=f"whetstone_training_tokens_per_second{{{_TRAINING_POD}}}", legend="{{pod}}")],
        ),
        Panel(
            title="Peak memory",
            unit="bytes",
            queries=[Query(expression=f"whetstone_training_peak_memory_bytes{{{_TRAINING_POD}}}", legend="{{pod}}")],
        ),
        Panel(
            title="Time left",
            unit="s",
            queries=[Query(expression=f"whetstone_training_eta_seconds{{{_TRAINING_POD}}}", legend="{{pod}}")],
        ),
    ],
)

BENCHMARKS = Dashboard(
    uid="whetstone-benchmarks",
    title="Whetstone / Benchmarks and promotions",
    variables=[_NAMESPACE],
    panels=[
        Panel(
            title="Mean reward with its 95 % interval",
            unit="percentunit",
            description="A point for each run that has ended. Compare runs by their verdict, not by eye.",
            queries=[
                Query(
                    expression='whetstone_benchmarkrun_score{namespace=~"$namespace", figure=~"mean|interval_.*"}',
                    legend="{{name}} ({{served}}) {{figure}}",
                )
            ],
        ),
        Panel(
            title="Coverage",
            unit="percentunit",
            description="Share of trials that were scored.",
            queries=[
                Query(
                    expression='whetstone_benchmarkrun_score{namespace=~"$namespace", figure="coverage"}',
                    legend="{{name}}",
                )
            ],
        ),
        Panel(
            title="Trials of runs at work",
            queries=[
                Query(
                    expression='sum by (name, state) (whetstone_benchmarkrun_trials{namespace=~"$namespace"})',
                    legend="{{name}} {{state}}",
                )
            ],
        ),
        Panel(
            title="What aliases serve",
            queries=[
                Query(
                    expression='whetstone_alias_target{namespace=~"$namespace"}',
                    legend="{{server}} {{alias}} → {{served}}",
                )
            ],
        ),
        Panel(
            title="Seconds since an alias moved",
            unit="s",
            queries=[
                Query(
                    expression='time() - whetstone_alias_moved_timestamp_seconds{namespace=~"$namespace"}',
                    legend="{{server}} {{alias}}: {{reason}}",
                )
            ],
        ),
        Panel(
            title="Runs whose figures count",
            numbers=True,
            queries=[
                Query(
                    expression='sum by (type, status) (whetstone_status_condition{kind="BenchmarkRun", '
                    'type=~"Valid|GatePassed", namespace=~"$namespace"})',
                    legend="{{type}}={{status}}",
                )
            ],
        ),
    ],
)

DASHBOARDS = (FLEET, SERVER, TRAINING, BENCHMARKS)


def dashboard_json(spec: Dashboard) -> str:
    """Return a dashboard as Grafana imports it."""
    built = (
        dashboard.Dashboard(spec.title)
        .uid(spec.uid)
        .tags(["whetstone"])
        .readonly()
        .refresh("30s")
        .time("now-6h", "now")
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    )
    for name, query in spec.variables:
        variable = dashboard.QueryVariable(name).datasource(SOURCE).query(query).multi(True).include_all(True)
        built = built.with_variable(variable.all_value(".*").refresh(VariableRefresh.ON_TIME_RANGE_CHANGED))
    for panel in spec.panels:
        built = built.with_panel(_panel(panel))
    return json.dumps(built.build(), cls=JSONEncoder, indent=1, sort_keys=True) + "\n"


def _panel(spec: Panel) -> stat.Panel | timeseries.Panel:
    panel = stat.Panel() if spec.numbers else timeseries.Panel()
    panel = panel.title(spec.title).description(spec.description).unit(spec.unit).datasource(SOURCE)
    panel = panel.span(_WIDTH).height(_HEIGHT)
    for letter, query in zip("ABCDEFGH", spec.queries, strict=False):
        target = prometheus.Dataquery().expr(query.expression).legend_format(query.legend).ref_id(letter)
        panel = panel.with_target(target)
    return panel


def _files(root: Path) -> dict[Path, str]:
    folder = root / "charts" / "whetstone" / "dashboards"
    return {folder / f"{spec.uid.removeprefix('whetstone-')}.json": dashboard_json(spec) for spec in DASHBOARDS}


def main(arguments: list[str] | None = None) -> int:
    """Write the dashboards, or tell whether they are current.

    Args:
        arguments: Command line; that of the process when absent.
    """
    return write_or_check(_files, about="Generate the dashboards.", arguments=arguments)


if __name__ == "__main__":
    sys.exit(main())
