"""Where the verdicts on the tasks' own solutions are kept. Pure."""

from whetstone_api.benchmark_oracle import VERDICTS_FOLDER
from whetstone_api.benchmarkrun import BenchmarkRunSpec
from whetstone_api.source import Source


def verdicts_place(spec: BenchmarkRunSpec) -> Source | None:
    """Return the folder of the verdicts; None for a run that does not ask for them.

    Unless the run names a place it is one folder for all runs whose results lie on the same claim, so that none of them
    runs a solution again.
    """
    oracle = spec.suite.harbor.oracle if spec.suite.harbor is not None else None
    if oracle is None:
        return None
    return oracle.verdicts or Source(uri=f"pvc://{spec.output.claim}/{VERDICTS_FOLDER}")
