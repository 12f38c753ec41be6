"""`whetstone results`: everything that a BenchmarkRun left, from the cluster to this machine."""

import argparse
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from whetstone_api.benchmark_result import RunComparison
from whetstone_api.benchmarkrun import BenchmarkRun
from whetstone_api.source import Source
from whetstone_api.vocabulary import GROUP, Label

from whetstone_cli.copying import CopyError, copy_folder
from whetstone_cli.exits import EXIT_INVALID, EXIT_USAGE
from whetstone_cli.kubectl import Kubectl, KubectlError
from whetstone_cli.reader_pod import MOUNT, reader_pod

_START_SECONDS: Final = 180
"""Time that the reader pod gets to start."""
_ENDED: Final = ("Complete", "Failed")


class ResultsError(Exception):
    """There is nothing to fetch; the message says why and what to do."""


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    one = commands.add_parser("results", help="fetch everything that a BenchmarkRun left, or print its summary")
    one.add_argument("run", help="name of the BenchmarkRun")
    one.add_argument("-n", dest="namespace", help="its namespace; kubectl's own when absent")
    one.add_argument("-o", dest="output", type=Path, help="folder that is made; default: the run's name")
    one.add_argument("--summary", action="store_true", help="print the figures of the status and fetch nothing")
    one.add_argument("--image", help="image of the pod that reads the claim; the runner's when absent")
    one.add_argument("--kubeconfig", help="as kubectl's")
    one.add_argument("--context", help="as kubectl's")
    one.set_defaults(command_function=results)


def results(options: argparse.Namespace) -> int:
    """Fetch a run's results, or print its summary.

    Args:
        options: Of the command line.

    Returns:
        The exit code: 1 when there is nothing to fetch or it did not arrive, 2 when the command cannot be run so.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        kubectl = Kubectl.found(namespace=options.namespace, kubeconfig=options.kubeconfig, context=options.context)
    except KubectlError as error:
        sys.stderr.write(f"whetstone: {error}\n")
        return EXIT_USAGE
    target = options.output or Path(options.run)
    try:
        run = kubectl.get(f"{BenchmarkRun.plural}.{GROUP}", options.run)
        if options.summary:
            print(summary(run))
            return 0
        _refuse(run, target)
        count = _fetch(kubectl, run, target, image=options.image)
    except (KubectlError, CopyError, ResultsError) as error:
        sys.stderr.write(f"whetstone: BenchmarkRun {options.run}: {error}\n")
        return EXIT_INVALID
    except OSError as error:
        sys.stderr.write(f"whetstone: {error.filename}: {error.strerror}\n")
        return EXIT_USAGE
    print(f"wrote {count} files to {target}; every checksum is right")
    return 0


def summary(run: Mapping[str, Any]) -> str:
    """Return a run's status as a table: conditions, figures, verdict.

    Args:
        run: The object.
    """
    status = run.get("status") or {}
    rows = [("run", f"{run['metadata']['namespace']}/{run['metadata']['name']}")]
    for one in status.get("conditions") or []:
        message = f": {one['message']}" if one.get("message") else ""
        rows.append((one["type"], f"{one['status']} ({one['reason']}){message}"))
    for part in ("target", "progress", "results"):
        for key, value in (status.get(part) or {}).items():
            text = " to ".join((value["low"], value["high"])) if key == "interval" else str(value)
            rows.append((f"{part}.{key}", text))
    with suppress(ValidationError):
        from whetstone_artifacts.report.words import verdict_sentence

        compared = RunComparison.model_validate(status.get("comparison"))
        rows.append(("comparison", verdict_sentence(compared)))
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {text}" for name, text in rows)


def _refuse(run: Mapping[str, Any], target: Path) -> None:
    """Refuse what would fetch half a run or lay it over something else."""
    conditions = (run.get("status") or {}).get("conditions") or []
    if not any(one["type"] in _ENDED and one["status"] == "True" for one in conditions):
        progress = (run.get("status") or {}).get("progress") or {}
        done = f" ({progress['finished']} of {progress['total']} trials)" if progress.get("total") else ""
        raise ResultsError(f"it has not ended{done}; wait for condition Complete, or look at --summary")
    if target.exists():
        raise ResultsError(f"{target} exists; give another -o")


def _fetch(kubectl: Kubectl, run: Mapping[str, Any], target: Path, *, image: str | None) -> int:
    output = Source.model_validate(run["spec"]["output"])
    template = _runner_template(kubectl, run["metadata"]["name"])
    image = image or run["spec"].get("image") or next((one["image"] for one in template.get("containers", ())), None)
    if image is None:
        raise ResultsError("its Job is gone, and so the runner's image is not known; name it with --image")
    pod = reader_pod(run, output, template, image)
    name = pod["metadata"]["name"]
    kubectl.create(pod)
    try:
        _wait(kubectl, name)
        return copy_folder(kubectl, name, f"{MOUNT}/{output.path}", target, _progress)
    finally:
        if sys.stderr.isatty():
            sys.stderr.write("\n")
        with suppress(KubectlError):
            kubectl.run("delete", "pod", name, "--wait=false", "--ignore-not-found")


def _runner_template(kubectl: Kubectl, run: str) -> dict[str, Any]:
    jobs = kubectl.get("jobs.batch", f"--selector={Label.BENCHMARK_RUN}={run}")["items"]
    latest = max(jobs, key=lambda job: str(job["metadata"]["creationTimestamp"]), default=None)
    template: dict[str, Any] = latest["spec"]["template"]["spec"] if latest else {}
    return template


def _wait(kubectl: Kubectl, pod: str) -> None:
    try:
        kubectl.run("wait", f"pod/{pod}", "--for=condition=Ready", f"--timeout={_START_SECONDS}s")
    except KubectlError as error:
        status = kubectl.get("pod", pod).get("status") or {}
        waiting = [
            one["state"]["waiting"] for one in status.get("containerStatuses") or [] if "waiting" in one["state"]
        ]
        told = [*waiting, *(one for one in status.get("conditions") or [] if one["status"] == "False")]
        why = next((text for one in told if (text := one.get("message") or one.get("reason"))), str(error))
        raise ResultsError(f"the pod that reads its claim did not start in {_START_SECONDS} s: {why}") from error


def _progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\rwhetstone: {done} of {total} files")
