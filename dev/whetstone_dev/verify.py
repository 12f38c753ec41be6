"""`make verify`: everything that can be said about the sources without running the product. `make generate`."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from whetstone_dev import versions
from whetstone_dev.commands import DevError, run
from whetstone_dev.gobuild import HELM, build
from whetstone_dev.places import CHECKOUT

_BIN = Path(sys.executable).parent
_SOURCES = ("operator", "server", "trainer", "agent", "dev", "tests", "bench")
_GENERATORS = (
    "whetstone_api.crdgen",
    "whetstone_api.conditions_page",
    "whetstone_api.troubleshooting_page",
    "whetstone_dev.company",
    "whetstone_dev.compatibility",
    "whetstone_dev.dashboards",
    "whetstone_dev.chart_readme",
    "whetstone_dev.image_list",
    "whetstone_dev.rbac_page",
)
_CHARTS = CHECKOUT / "charts"


def verify() -> int:
    """Run every check, also after a failed one, and return 1 if one failed."""
    failed = [name for name, check in CHECKS.items() if not _passes(name, check)]
    if failed:
        print(f"verify: failed: {', '.join(failed)}")
    return 1 if failed else 0


def generate() -> int:
    """Write every generated file; return 0."""
    for module in _GENERATORS:
        run([sys.executable, "-m", module, "--write"], cwd=CHECKOUT, env=_environment())
    return 0


def _passes(name: str, check: Callable[[], None]) -> bool:
    start = time.monotonic()
    try:
        check()
    except DevError as error:
        print(f"verify: {name} FAILED\n{error}", flush=True)
        return False
    print(f"verify: {name} ok ({time.monotonic() - start:.1f} s)", flush=True)
    return True


def _environment() -> dict[str, str]:
    folders = ("operator", "server", "trainer", "agent", "dev")
    return {**os.environ, "PYTHONPATH": os.pathsep.join(str(CHECKOUT / folder) for folder in folders)}


def _check(*command: str | Path) -> None:
    """Run a checker; its whole output is the error."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=CHECKOUT,
        env=_environment(),
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if done.returncode:
        raise DevError(done.stdout.strip() or f"{command[0]} ended with {done.returncode}")


def _generated() -> None:
    for module in _GENERATORS:
        _check(sys.executable, "-m", module, "--check")


def _no_operator_package() -> None:
    if (CHECKOUT / "operator" / "__init__.py").exists():
        raise DevError("operator/__init__.py hides Python's own module operator; delete it")


def _ruff() -> None:
    _check(_BIN / "ruff", "check", *_SOURCES)


def _format() -> None:
    _check(_BIN / "ruff", "format", "--check", *_SOURCES)


def _mypy() -> None:
    _check(_BIN / "mypy")


def _imports() -> None:
    _check(_BIN / "lint-imports")


def _charts() -> None:
    """Lint the charts, render them with every values file of theirs, and validate what comes out offline."""
    helm = build(HELM)
    for chart in sorted(path.parent for path in _CHARTS.glob("*/Chart.yaml")):
        for values in sorted(chart.glob("ci/*.yaml")) or [chart / "values.yaml"]:
            _check(helm, "lint", "--strict", "--quiet", chart, "--values", values)
            _validate(chart, values)


def _validate(chart: Path, values: Path) -> None:
    arguments = ["--namespace", "whetstone-system", "--kube-version", versions.KUBERNETES, "--values", str(values)]
    rendered = run([HELM.path, "template", "release", chart, *arguments])
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(rendered)
        file.flush()
        minor = versions.KUBERNETES.rsplit(".", 1)[0]
        _check(_BIN / "kubernetes-validate", "--quiet", "--strict", "--kubernetes-version", minor, file.name)


CHECKS: dict[str, Callable[[], None]] = {
    "generated files": _generated,
    "no operator package": _no_operator_package,
    "ruff check": _ruff,
    "ruff format": _format,
    "mypy": _mypy,
    "import contracts": _imports,
    "charts": _charts,
}
