"""`python -m whetstone_dev`: the development commands that the Makefile calls."""

import argparse
import sys
from collections.abc import Callable, Sequence

from whetstone_dev.commands import DevError

Command = Callable[[argparse.Namespace], None]


def _cluster(arguments: argparse.Namespace) -> None:
    from whetstone_dev.cluster import Cluster

    cluster = Cluster(arguments.name)
    if arguments.action == "up":
        cluster.up(arguments.nodes)
    elif arguments.action == "down":
        cluster.down()
    else:
        for name, alive in cluster.running().items():
            print(f"{name:26} {'running' if alive else 'not running'}")
        for name, state in cluster.readiness().items():
            print(f"{f'node {name}':26} {state}")


def _images(arguments: argparse.Namespace) -> None:
    from whetstone_dev.images import build_and_push

    build_and_push(arguments.only)


def _build_tools(_: argparse.Namespace) -> None:
    from whetstone_dev.gobuild import build_all

    build_all()


def _demo(arguments: argparse.Namespace) -> None:
    from whetstone_dev.demo.__main__ import run_demo
    from whetstone_dev.demo.target import choose

    target = choose(
        registry=arguments.registry, insecure=arguments.insecure_registry, storage_class=arguments.storage_class
    )
    sys.exit(run_demo(small=arguments.small, target=target, dry_run=arguments.dry_run))


def _demo_down(_: argparse.Namespace) -> None:
    from whetstone_dev.demo.down import take_down
    from whetstone_dev.demo.target import of_cluster

    take_down(of_cluster())


def _verify(_: argparse.Namespace) -> None:
    from whetstone_dev.verify import verify

    sys.exit(verify())


def _generate(_: argparse.Namespace) -> None:
    from whetstone_dev.verify import generate

    sys.exit(generate())


def _sbom(_: argparse.Namespace) -> None:
    from whetstone_dev.sbom import FOLDER, write_all

    write_all()
    print(f"written to {FOLDER}")


def _audit(_: argparse.Namespace) -> None:
    from whetstone_dev.sbom import audit

    audit()


def _test_trainer(arguments: argparse.Namespace) -> None:
    from whetstone_dev.trainer_tests import run_trainer_tests

    sys.exit(run_trainer_tests(arguments.pytest))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m whetstone_dev", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, run: Command, text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(run=run)
        return command

    cluster = add("cluster", _cluster, "start, stop or look at the local cluster")
    cluster.add_argument("action", choices=("up", "down", "status"))
    cluster.add_argument("--name", default="whetstone", help="name of the cluster (default: %(default)s)")
    sizes = "with `up`: how many nodes it shall have (default: what it has, 1 at first)"
    cluster.add_argument("--nodes", type=int, choices=(1, 2), help=sizes)
    images = add("images", _images, "build images and push them to the local registry")
    images.add_argument("only", nargs="*", metavar="IMAGE", help="only these (default: all)")
    add("build-tools", _build_tools, "build Kubernetes, CoreDNS, Helm and the volume provisioner into the cache")
    demo = add("demo", _demo, "run the whole loop on the local cluster, or on that of KUBECONFIG")
    demo.add_argument("--small", action="store_true", help="a loop of 8 tasks that the tests use")
    demo.add_argument("--registry", help="registry that the nodes of KUBECONFIG's cluster pull from, without a scheme")
    demo.add_argument("--insecure-registry", action="store_true", help="it speaks HTTP or has an unknown certificate")
    demo.add_argument("--storage-class", help="class with ReadWriteMany volumes (default: the cluster's default)")
    demo.add_argument("--dry-run", action="store_true", help="say what would be done, and change nothing")
    add("demo-down", _demo_down, "remove what the demo made on the local cluster, or on that of KUBECONFIG")
    add("verify", _verify, "check generated files, lint, types, import contracts and charts")
    add("generate", _generate, "rewrite everything that is generated")
    add("sbom", _sbom, "write what is in the images to build/sbom, as CycloneDX")
    add("audit", _audit, "ask PyPI whether a package of the images has a known hole")
    trainer = add("test-trainer", _test_trainer, "run the trainer's tests in an environment with torch")
    trainer.add_argument("pytest", nargs="*", help="further arguments for pytest")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; a failure that the user can act on is one message and exit code 1."""
    parsed = _parser().parse_args(arguments)
    try:
        parsed.run(parsed)
    except DevError as error:
        print(f"whetstone: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
