"""`whetstone must-gather`: all that a report of a problem needs, without Secrets, in one folder or archive."""

import argparse
import shlex
import shutil
import signal
import sys
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from whetstone_cli.exits import EXIT_INVALID, EXIT_USAGE
from whetstone_cli.kubectl import Kubectl, KubectlError
from whetstone_cli.must_gather.gather import Gatherer
from whetstone_cli.must_gather.plan import cluster_asks, namespace_asks, system_asks

_ARCHIVES: Final = (".tar.gz", ".tgz")
_WIDTH: Final = 100


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    one = commands.add_parser("must-gather", help="collect all that a report of a problem needs, without Secrets")
    where = one.add_mutually_exclusive_group()
    where.add_argument("-n", dest="namespace", help="namespace of the objects; kubectl's own when absent")
    where.add_argument("-A", dest="all", action="store_true", help="all namespaces")
    one.add_argument("--system-namespace", default="whetstone-system", help="the operator's (default: %(default)s)")
    one.add_argument("-o", dest="output", type=Path, help="folder or .tar.gz that is made; default: a dated .tar.gz")
    one.add_argument("--tail", type=int, default=5000, help="lines of each log, from its end (default: %(default)s)")
    one.add_argument("--pods", type=int, default=200, help="pods whose logs are fetched (default: %(default)s)")
    one.add_argument("--dry-run", action="store_true", help="say what would be asked, and ask nothing")
    one.add_argument("--kubeconfig", help="as kubectl's")
    one.add_argument("--context", help="as kubectl's")
    one.set_defaults(command_function=must_gather)


def must_gather(options: argparse.Namespace) -> int:
    """Collect.

    Args:
        options: Of the command line.

    Returns:
        The exit code: 1 when the cluster cannot be reached, 2 when the command cannot be run so.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    target = options.output or Path(f"whetstone-must-gather-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.tar.gz")
    if target.exists():
        sys.stderr.write(f"whetstone: {target} exists; give another -o\n")
        return EXIT_USAGE
    try:
        kubectl = Kubectl.found(namespace=None, kubeconfig=options.kubeconfig, context=options.context)
        scope = "--all-namespaces" if options.all else f"--namespace={options.namespace or kubectl.namespace()}"
    except KubectlError as error:
        sys.stderr.write(f"whetstone: {error}\n")
        return EXIT_USAGE
    if options.dry_run:
        return _foretell(scope, options.system_namespace, target)
    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True, mode=0o700)
        gatherer = Gatherer(kubectl, partial, _progress, log_lines=options.tail, most_pods=options.pods)
        gatherer.collect(scope, options.system_namespace)
        _finish(partial, target)
    except KubectlError as error:
        sys.stderr.write(f"whetstone: the cluster cannot be asked: {error}\n")
        return EXIT_INVALID
    except OSError as error:
        sys.stderr.write(f"whetstone: {error.filename}: {error.strerror}\n")
        return EXIT_USAGE
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        _progress("")
    print(f"wrote {gatherer.files} files to {target}; look through them before you hand them on")
    for gap in gatherer.gaps:
        print(f"not read: {gap}")
    return 0


def _foretell(scope: str, system: str, target: Path) -> int:
    for ask in (*namespace_asks(scope), *system_asks(system), *cluster_asks()):
        print(shlex.join(("kubectl", "get", *ask.arguments)))
    print("kubectl get secret, each one that those name: only names of keys are kept, values are removed everywhere")
    print("kubectl logs, of each container of those pods")
    print(f"would be written to {target}; nothing was asked and nothing written")
    return 0


def _finish(folder: Path, target: Path) -> None:
    """Let the result appear whole."""
    if not target.name.endswith(_ARCHIVES):
        folder.rename(target)
        return
    packed = folder / target.name
    name = target.name.removesuffix(".tgz").removesuffix(".tar.gz")
    with tarfile.open(packed, "x:gz") as archive:
        archive.add(folder, arcname=name, filter=lambda one: None if one.name == f"{name}/{target.name}" else one)
    packed.chmod(0o600)
    packed.rename(target)


def _progress(what: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{what[:_WIDTH]}")
