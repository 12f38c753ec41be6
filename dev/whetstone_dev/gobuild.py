"""Build the cluster's programs from published Go modules, once per version, into the cache folder."""

import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from whetstone_dev import versions
from whetstone_dev.commands import DevError, run
from whetstone_dev.places import CHECKOUT, cache_folder
from whetstone_dev.progress import stage
from whetstone_dev.turns import turn

_SOURCES = CHECKOUT / "dev" / "go"


@dataclass(frozen=True)
class Program:
    """A program to build: its name, version, expected duration in words, and how to prepare its module folder.

    `manifests` is the folder of the prepared one that is kept beside the program, if any.
    """

    name: str
    version: str
    expected: str
    prepare: Callable[[Path], list[str]]
    manifests: str | None = None

    @property
    def path(self) -> Path:
        """Where the built program lies, whether built yet or not."""
        return cache_folder() / self.name / self.version / self.name


def kubernetes_go_mod(upstream: str, *, version: str) -> str:
    """The go.mod of a program that imports k8s.io/kubernetes.

    Upstream's file replaces each staging module by a folder that the published module does not hold, so each is
    replaced by the published module of the same minor and patch (k8s.io/kubernetes v1.34.4 is k8s.io/api v0.34.4).
    """
    staging = re.findall(r"^\s*(k8s\.io/[\w.-]+) => \./staging", upstream, re.MULTILINE)
    text = upstream.replace("module k8s.io/kubernetes", "module whetstone.dev/hyperkube")
    text = re.sub(r"replace \(.*?\n\)\n", "", text, flags=re.DOTALL)
    text = text.replace("require (\n", f"require (\n\tk8s.io/kubernetes v{version}\n", 1)
    published = "v0." + version.split(".", 1)[1]
    return text + "\nreplace (\n" + "".join(f"\t{name} => {name} {published}\n" for name in staging) + ")\n"


def _environment() -> dict[str, str]:
    environment = dict(os.environ)
    environment.update(CGO_ENABLED="0", GOFLAGS="-mod=mod", GOTOOLCHAIN="auto")
    return environment


def _module_folder(module: str, version: str, *, work: Path) -> Path:
    text = run(["go", "mod", "download", "-json", f"{module}@v{version}"], cwd=work, env=_environment())
    return Path(json.loads(text)["Dir"])


def _hyperkube(work: Path) -> list[str]:
    module = _module_folder("k8s.io/kubernetes", versions.KUBERNETES, work=work)
    upstream = (module / "go.mod").read_text()
    (work / "go.mod").write_text(kubernetes_go_mod(upstream, version=versions.KUBERNETES))
    (work / "go.sum").write_text((module / "go.sum").read_text())
    shutil.copy(_SOURCES / "hyperkube" / "main.go", work)
    stamp = "k8s.io/component-base/version"
    major, minor, _ = versions.KUBERNETES.split(".")
    return [f"-X {stamp}.gitVersion=v{versions.KUBERNETES} -X {stamp}.gitMajor={major} -X {stamp}.gitMinor={minor}"]


def _require(name: str, version: str, *, work: Path) -> Path:
    """Make a module that requires another one with all of its versions; return that one's folder."""
    module = _module_folder(name, version, work=work)
    text = (module / "go.mod").read_text().replace(f"module {name}", f"module whetstone.dev/{name.rpartition('/')[2]}")
    (work / "go.mod").write_text(text.replace("require (\n", f"require (\n\t{name} v{version}\n", 1))
    (work / "go.sum").write_text((module / "go.sum").read_text())
    return module


def _coredns(work: Path) -> list[str]:
    _require("github.com/coredns/coredns", versions.COREDNS, work=work)
    shutil.copy(_SOURCES / "coredns" / "main.go", work)
    return [""]


def _node_helper(work: Path) -> list[str]:
    (work / "go.mod").write_text("module whetstone.dev/nodehelper\n\ngo 1.21\n")
    shutil.copy(_SOURCES / "nodehelper" / "main.go", work)
    return [""]


def _health(work: Path) -> list[str]:
    for name in ("go.mod", "go.sum", "main.go"):
        shutil.copy(_SOURCES / "health" / name, work)
    return [""]


def _argocd(work: Path) -> list[str]:
    module = _require("github.com/argoproj/argo-cd/v3", versions.ARGOCD, work=work)
    shutil.copy(_SOURCES / "argocd" / "main.go", work)
    (work / "manifests").mkdir()
    for name in ("application-crd.yaml", "appproject-crd.yaml"):
        shutil.copyfile(module / "manifests" / "crds" / name, work / "manifests" / name)
    return [f"-X github.com/argoproj/argo-cd/v3/common.version=v{versions.ARGOCD}"]


def _local_path(work: Path) -> list[str]:
    module = _module_folder("github.com/rancher/local-path-provisioner", versions.LOCAL_PATH, work=work)
    for name in ("go.mod", "go.sum", "main.go", "provisioner.go", "util.go"):
        (work / name).write_text((module / name).read_text())
    return [f"-X main.VERSION=v{versions.LOCAL_PATH}"]


def _copy_module(module: str, version: str, *, work: Path) -> None:
    folder = _module_folder(module, version, work=work)
    shutil.copytree(folder, work, dirs_exist_ok=True, copy_function=shutil.copyfile)
    for copied in [work, *(path for path in work.rglob("*") if path.is_dir())]:
        copied.chmod(0o755)


def _s3_gateway(work: Path) -> list[str]:
    _copy_module("github.com/versity/versitygw", versions.S3_GATEWAY, work=work)
    return ["", "./cmd/versitygw"]


def _kueue(work: Path) -> list[str]:
    module = _require("sigs.k8s.io/kueue", versions.KUEUE, work=work)
    for folder in ("crd/bases", "webhook"):
        source = module / "config" / "components" / folder
        shutil.copytree(source, work / "manifests" / folder, copy_function=shutil.copyfile)
    return ["", "sigs.k8s.io/kueue/cmd/kueue"]


def _kube_router(work: Path) -> list[str]:
    _require("github.com/cloudnativelabs/kube-router/v2", versions.KUBE_ROUTER, work=work)
    return ["", "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router"]


def _helm(work: Path) -> list[str]:
    _copy_module("helm.sh/helm/v3", versions.HELM, work=work)
    return [f"-X helm.sh/helm/v3/internal/version.version=v{versions.HELM}", "./cmd/helm"]


def _containerd_part(name: str) -> Callable[[Path], list[str]]:
    def prepare(work: Path) -> list[str]:
        _copy_module("github.com/containerd/containerd/v2", versions.CONTAINERD, work=work)
        stamp = f"-X github.com/containerd/containerd/v2/version.Version={versions.CONTAINERD}"
        return [stamp, "-tags=no_btrfs,no_zfs,no_devmapper", f"./cmd/{name}"]

    return prepare


HYPERKUBE = Program("hyperkube", versions.KUBERNETES, "5 to 8 minutes on 2 cores", _hyperkube)
COREDNS = Program("coredns", versions.COREDNS, "1.5 minutes", _coredns)
HELM = Program("helm", versions.HELM, "1.5 minutes", _helm)
LOCAL_PATH = Program("local-path-provisioner", versions.LOCAL_PATH, "1 minute", _local_path)
NODE_HELPER = Program("nodehelper", versions.NODE_HELPER, "", _node_helper)
S3_GATEWAY = Program("versitygw", versions.S3_GATEWAY, "1.5 minutes", _s3_gateway)
"""An S3 server over a folder, for tests of `s3://` sources; built when the first of them runs."""
KUEUE = Program("kueue", versions.KUEUE, "6 to 12 minutes on 2 cores", _kueue, manifests="manifests")
"""The queueing system, for tests of `queueName`; built when the first of them runs."""
KUBE_ROUTER = Program("kube-router", versions.KUBE_ROUTER, "2 to 4 minutes on 2 cores", _kube_router)
"""Enforces NetworkPolicies, for tests of trials' networks; built when the first of them runs."""
HEALTH = Program("health", versions.HEALTH, "1 minute", _health)
"""What Argo CD's health checks and kstatus say of objects; built when the first test of it runs."""
ARGOCD = Program("argocd", versions.ARGOCD, "4 to 12 minutes on 2 cores", _argocd, manifests="manifests")
"""Argo CD's application controller and repo server, for tests of syncs; built when the first of them runs."""
CONTAINERD, CONTAINERD_SHIM, CTR = (
    Program(name, versions.CONTAINERD, "1 minute", _containerd_part(name))
    for name in ("containerd", "containerd-shim-runc-v2", "ctr")
)
"""Debian's containerd knows no image volumes; the shim starts a pod's containers, and `ctr` imports images."""
PROGRAMS = (HYPERKUBE, CONTAINERD, CONTAINERD_SHIM, CTR, COREDNS, LOCAL_PATH, NODE_HELPER, HELM)


def build(program: Program) -> Path:
    """Build a program unless the cache holds it, and return its path.

    Raises:
        DevError: Go is missing, or the modules could not be fetched or compiled.
    """
    if program.path.exists():
        return program.path
    if shutil.which("go") is None:
        raise DevError("go: program not found; install Go 1.25 or newer (https://go.dev/dl) and put it on PATH")
    with turn(program.name):
        if not program.path.exists():
            _build(program)
    return program.path


def _build(program: Program) -> None:
    work = cache_folder() / "build" / program.name
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    with stage(f"Building {program.name} {program.version}, once", expected=program.expected):
        flags, *packages = program.prepare(work)
        built = work / "built.program"
        command = ["go", "build", "-trimpath", "-ldflags", f"-s -w {flags}", "-o", str(built), *(packages or ["."])]
        run(command, cwd=work, env=_environment(), log=cache_folder() / "log" / f"{program.name}.log")
    program.path.parent.mkdir(parents=True, exist_ok=True)
    if program.manifests is not None:
        kept = program.path.parent / program.manifests
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(work / program.manifests, kept, copy_function=shutil.copyfile)
    built.replace(program.path)
    shutil.rmtree(work, ignore_errors=True)


def build_all() -> None:
    """Build every program that the cache lacks, then drop Go's compile cache when anything was compiled in CI.

    Go's cache grows to 10 GB and is of no use once the programs are kept; elsewhere it belongs to the user.
    """
    missing = [program for program in PROGRAMS if not program.path.exists()]
    for program in missing:
        build(program)
    if missing and os.environ.get("CI"):
        run(["go", "clean", "-cache"])
