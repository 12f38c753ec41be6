"""The charts' life on a real API server: install, upgrade with objects live, roll back, uninstall in any order."""

import io
import subprocess
import tarfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from integration.api import Api, Object, Refused
from integration.operator_process import OperatorProcess
from integration.releases import CRD_RELEASE, OPERATOR_RELEASE, Releases, aged
from integration.world import World
from support.waiting import eventually, eventually_none
from whetstone_dev.commands import DevError
from whetstone_dev.controlplane import ControlPlane
from whetstone_dev.places import CHECKOUT
from whetstone_operator.__main__ import EXIT_STARTED_AGAIN

pytestmark = pytest.mark.integration
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
BEFORE_OPERATIONS = "10dcdd6d4573d753b41d1c77a5d7851e0589451e"
"""Commit that stands for the previous release while none is tagged."""
DEFINITIONS_GO_SECONDS = 150.0
"""The API server itself looks for up to a minute whether the objects of a definition are gone, and tries again."""
OUR_IMAGES = {"spec.initContainers[guard].image", "spec.containers[sidecar].image"}
"""What a release with other images of ours changes in an engine pod."""
OF_THIS_RELEASE = {
    "spec.containers[sidecar].startupProbe",
    "spec.containers[sidecar].livenessProbe.initialDelaySeconds",
    "spec.containers[engine].env[WHETSTONE_TOKEN_FILE].value",
    "spec.containers[sidecar].env[WHETSTONE_TOKEN_FILE].value",
    "spec.containers[engine].volumeMounts[token]",
    "spec.containers[sidecar].volumeMounts[token]",
    "spec.containers[sidecar].volumeMounts[access]",
    "spec.volumes[token]",
    "spec.volumes[access].secret.items",
}
"""What else is changed there since the last release: engines restart for it in turns, as the upgrade notes say."""


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane without Whetstone's kinds."""
    with ControlPlane(tmp_path_factory.mktemp("control-plane")) as plane:
        yield plane


@pytest.fixture(scope="module")
def client(plane: ControlPlane) -> Iterator[Api]:
    """The administrator's client."""
    with Api(plane.server, plane.pki.folder) as client:
        yield client


@dataclass
class Site:
    """A cluster with two namespaces: one of the releases and one of a team."""

    api: Api
    folder: Path
    releases: Releases
    team: World

    def values(self, tag: str) -> dict[str, Any]:
        """Return values of the operator's chart with a tag of our images."""
        images = {"registry": "r.test/w", "engine": "r.test/engine:1", "tag": tag}
        return {"images": images, "servedNamespaces": [self.team.namespace]}

    def template(self) -> Object:
        """Return the pod template of the team's server."""
        deployment = self.api.get("Deployment", "server-engine", namespace=self.team.namespace)
        assert deployment is not None, "the server has no Deployment"
        found: Object = deployment["spec"]["template"]
        return found

    def value(self, secret: str, key: str) -> str:
        """Return what a Secret in the team's namespace holds under a key, as it is stored."""
        found = self.api.get("Secret", secret, namespace=self.team.namespace)
        assert found is not None, f"there is no Secret {secret}"
        return str(found["data"][key])

    def uids(self, kind: str) -> dict[str, str]:
        """Return the uid of each object of a kind in the team's namespace, by its name."""
        found = self.api.list(kind, namespace=self.team.namespace)
        return {one["metadata"]["name"]: one["metadata"]["uid"] for one in found}

    def namespaces(self) -> set[str]:
        """Return the namespaces that exist, those that are being deleted included."""
        return {one["metadata"]["name"] for one in self.api.raw("GET", "/api/v1/namespaces")["items"]}

    def create_namespace(self, name: str) -> None:
        """Create a namespace."""
        self.api.raw("POST", "/api/v1/namespaces", {"metadata": {"name": name}})

    def delete_namespace(self, name: str) -> None:
        """Delete a namespace, which must come to an end."""
        self.api.raw("DELETE", f"/api/v1/namespaces/{name}")
        eventually(lambda: name not in self.namespaces(), what=f"namespace {name} is gone")

    def definitions(self) -> Object:
        """Return our resource definitions by name."""
        found = {one["metadata"]["name"]: one for one in self.api.raw("GET", DEFINITIONS)["items"]}
        return {name: one for name, one in found.items() if name.endswith(".whetstone.dev")}

    def definition(self, name: str) -> Object:
        """Return a resource definition."""
        return self.api.raw("GET", f"{DEFINITIONS}/{name}")

    def may(self, verb: str, resource: str, namespace: str | None) -> bool:
        """Return whether the release's operator may do something in a namespace; None: in the whole cluster."""
        plural, _, group = resource.partition(".")
        where = {"namespace": namespace} if namespace else {}
        asked = {
            "user": f"system:serviceaccount:{self.releases.namespace}:whetstone-operator",
            "groups": ["system:serviceaccounts", f"system:serviceaccounts:{self.releases.namespace}"],
            "resourceAttributes": {"verb": verb, "group": group, "resource": plural, **where},
        }
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": asked}
        answer = self.api.raw("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        return bool(answer["status"]["allowed"])

    def delete_definitions(self) -> None:
        """Delete our resource definitions, and with them every object; it must come to an end."""
        for name in self.definitions():
            self.api.raw("DELETE", f"{DEFINITIONS}/{name}")

        def left() -> dict[str, Any]:
            return {name: one.get("status", {}).get("conditions") for name, one in self.definitions().items()}

        eventually_none(left, what="the definitions are gone", seconds=DEFINITIONS_GO_SECONDS)

    def live(self) -> None:
        """Make a server that serves, and a training in its first stage."""
        self.team.claims()
        self.team.serve()
        self.team.start_engines()
        self.team.train()
        self.team.wait_job("train", "prepare")


@pytest.fixture
def site(client: Api, plane: ControlPlane, tmp_path: Path) -> Iterator[Site]:
    """The cluster with an empty namespace of a team; releases and definitions are gone afterwards."""
    one = new_site(client, plane, tmp_path)
    yield one
    one.releases.remove_all()
    one.delete_definitions()


@pytest.fixture
def other(site: Site, client: Api, plane: ControlPlane, tmp_path: Path) -> Iterator[Site]:
    """Another team in the same cluster, with a namespace for releases of its own."""
    one = new_site(client, plane, tmp_path)
    yield one
    one.releases.remove_all()


def new_site(client: Api, plane: ControlPlane, folder: Path) -> Site:
    """Make a team's namespace, and name one for its releases."""
    mark = uuid.uuid4().hex[:8]
    releases = Releases(plane, client, f"system-{mark}", folder / mark)
    one = Site(client, folder, releases, World(client, f"team-{mark}"))
    one.create_namespace(one.team.namespace)
    return one


@pytest.fixture
def start(site: Site) -> Iterator[Callable[..., OperatorProcess]]:
    """Start the operator of a release, by default the site's; it ends with the test."""
    running: list[OperatorProcess] = []

    def begin(releases: Releases | None = None, **arguments: Any) -> OperatorProcess:
        running.append((releases or site.releases).operator(**arguments))
        return running[-1]

    yield begin
    for process in running:
        process.stop()


def differences(one: Any, other: Any, path: str = "") -> set[str]:
    """Return where two manifests differ, as in `spec.containers[sidecar].image`."""
    if isinstance(one, dict) and isinstance(other, dict):
        return {found for key in {*one, *other} for found in differences(one.get(key), other.get(key), f"{path}.{key}")}
    if isinstance(one, list) and isinstance(other, list):
        named = [{item.get("name"): item for item in some if isinstance(item, dict)} for some in (one, other)]
        if len(named[0]) == len(one) and len(named[1]) == len(other):
            return {
                found
                for name in {*named[0], *named[1]}
                for found in differences(named[0].get(name), named[1].get(name), f"{path}[{name}]")
            }
    return set() if one == other else {path.removeprefix(".")}


def test_an_upgrade_and_its_rollback_restart_nothing_that_need_not(
    site: Site, start: Callable[..., OperatorProcess]
) -> None:
    crds, chart = aged(site.folder, without="limits")
    site.releases.put_crds(crds)
    site.releases.put_operator(site.values("1"), chart)
    operator = start()
    site.live()
    before, pods, jobs = site.template(), site.uids("Pod"), site.uids("Job")
    limited = {"limits": {"concurrentRequests": 2}}
    with pytest.raises(Refused, match="unknown field"):
        site.team.serve("limited", **limited)

    site.releases.put_crds()
    site.releases.put_operator(site.values("1"))
    operator = take_over(operator, start)

    assert differences(before, site.template()) == set()
    assert (site.uids("Pod"), site.uids("Job")) == (pods, jobs)
    site.team.serve("limited", replicas=0, **limited)

    # The sidecar speaks with the operator and alone follows it, once no benchmark measures its server.
    site.team.benchmark()
    site.team.wait_job("run", "run")
    jobs = site.uids("Job")
    site.releases.put_operator(site.values("2"))
    operator = take_over(operator, start)
    assert differences(before, site.template()) == set()
    assert site.uids("Job") == jobs
    site.api.delete("BenchmarkRun", "run", namespace=site.team.namespace)
    eventually(lambda: differences(before, site.template()) == OUR_IMAGES, what="only images of ours change")

    site.releases.helm("rollback", OPERATOR_RELEASE, "1")
    take_over(operator, start)
    eventually(lambda: differences(before, site.template()) == set(), what="the pods are as before")
    assert "limited" in site.uids("ModelServer")


def test_operators_of_some_namespaces_live_side_by_side_with_rights_for_these_alone(
    site: Site, other: Site, start: Callable[..., OperatorProcess]
) -> None:
    site.releases.put_crds()
    for one in (site, other):
        one.releases.put_operator({**one.values("1"), "watchNamespaces": [one.team.namespace]})
        one.team.claims()
        one.team.serve()
    operator = start()
    site.team.start_engines()
    assert other.uids("Deployment") == {}
    for one, allowed in ((site, True), (other, False)):
        assert site.may("list", "modelservers.whetstone.dev", one.team.namespace) is allowed
        assert site.may("create", "deployments.apps", one.team.namespace) is allowed
    assert not site.may("list", "modelservers.whetstone.dev", None)

    other.releases.helm("uninstall", OPERATOR_RELEASE)

    site.team.serve("second")
    eventually(lambda: "second-engine" in site.uids("Deployment"), what="the other operator works on")
    operator.stop()


def test_a_second_operator_for_the_whole_cluster_is_refused(site: Site, other: Site) -> None:
    site.releases.put_crds()
    site.releases.put_operator(site.values("1"))

    with pytest.raises(DevError, match="invalid ownership metadata"):
        other.releases.put_operator(other.values("1"))


def test_a_second_operator_for_the_same_namespace_is_refused(site: Site, other: Site) -> None:
    site.releases.put_crds()
    site.releases.put_operator({**site.values("1"), "watchNamespaces": [site.team.namespace]})

    with pytest.raises(DevError, match="invalid ownership metadata"):
        other.releases.put_operator({**other.values("1"), "watchNamespaces": [site.team.namespace]})


def test_operator_of_a_team_keeps_its_namespace_from_that_of_the_whole_cluster(
    site: Site, other: Site, start: Callable[..., OperatorProcess]
) -> None:
    site.releases.put_crds()
    site.releases.put_operator(site.values("2"))
    other.releases.put_operator({**other.values("1"), "watchNamespaces": [other.team.namespace]})
    for one in (site, other):
        one.team.claims()
        one.team.serve()
    start(other.releases)
    eventually(lambda: "server-engine" in other.uids("Deployment"), what="the team's operator works")
    made = other.template()

    wide = start()

    eventually(lambda: "server-engine" in site.uids("Deployment"), what="the operator of the whole cluster works")
    eventually(lambda: wide.metric("whetstone_reconcile_total", controller="modelservers") >= 2, what="a look at both")
    assert wide.metric("whetstone_namespace_refused", namespace=other.team.namespace) == 1
    assert differences(made, other.template()) == set()


def test_without_operator_objects_stay_and_go_and_a_new_one_finds_its_children(
    site: Site, start: Callable[..., OperatorProcess]
) -> None:
    site.releases.put_crds()
    site.releases.put_operator(site.values("1"))
    operator = start()
    site.live()
    template, deployments, jobs = site.template(), site.uids("Deployment"), site.uids("Job")

    # While it still may: else the next one waits until its Lease has run out.
    operator.stop()
    site.releases.helm("uninstall", OPERATOR_RELEASE)

    assert (site.uids("Deployment"), site.uids("Job")) == (deployments, jobs)
    site.api.delete("LoRATrainingJob", "train", namespace=site.team.namespace)
    eventually(lambda: not {*site.uids("Job"), *site.uids("LoRATrainingJob")}, what="the training is gone")
    site.releases.put_operator(site.values("1"))
    wait_looked(start(), "modelservers")
    assert site.uids("Deployment") == deployments
    assert differences(template, site.template()) == set()


@pytest.mark.long
def test_definitions_outlive_their_release_and_an_operator_their_deletion(
    site: Site, start: Callable[..., OperatorProcess]
) -> None:
    site.releases.put_crds()
    site.releases.put_operator(site.values("1"))
    operator = start()
    site.live()
    servers, definitions = site.uids("ModelServer"), set(site.definitions())

    site.releases.helm("uninstall", CRD_RELEASE)

    assert set(site.definitions()) == definitions
    assert site.uids("ModelServer") == servers
    site.team.serve("second")
    eventually(lambda: "second-engine" in site.uids("Deployment"), what="the operator works on")
    site.releases.put_crds()
    assert site.uids("ModelServer").items() >= servers.items()

    site.delete_definitions()

    # As the kubelet does: what ended is started again.
    assert operator.wait_end() == EXIT_STARTED_AGAIN
    assert "stopped: the API server does not know" in operator.log.splitlines()[-1]
    eventually(lambda: not {*site.uids("Deployment"), *site.uids("Job"), *site.uids("Pod")}, what="children are gone")
    operator.launch()
    eventually(lambda: "install the chart whetstone-crds" in operator.log, what="the operator says what it misses")
    assert not operator.ready()
    site.releases.helm("uninstall", CRD_RELEASE)
    site.releases.put_crds()
    eventually(operator.ready, what="the operator is ready")
    site.team.serve("third")
    eventually(lambda: "third-engine" in site.uids("Deployment"), what="the operator works on")


@pytest.mark.long
def test_namespaces_may_go_first(site: Site, start: Callable[..., OperatorProcess]) -> None:
    site.releases.put_crds()
    site.releases.put_operator(site.values("1"))
    operator = start()
    site.live()
    deployments = site.uids("Deployment")

    site.delete_namespace(site.releases.namespace)
    operator.stop()

    # With it went the releases' own records; roles and definitions of the cluster are found again by their names.
    assert site.uids("Deployment") == deployments
    site.releases.put_crds()
    site.releases.put_operator(site.values("1"))
    wait_looked(start(), "modelservers")
    assert site.uids("Deployment") == deployments

    site.delete_namespace(site.team.namespace)

    with pytest.raises(DevError, match="not found"):
        site.releases.put_operator(site.values("1"))
    site.releases.put_operator({**site.values("1"), "servedNamespaces": []})
    for release in (OPERATOR_RELEASE, CRD_RELEASE):
        site.releases.helm("uninstall", release)


@pytest.mark.long
def test_an_upgrade_from_the_last_release_changes_what_the_upgrade_notes_say(
    site: Site, start: Callable[..., OperatorProcess]
) -> None:
    last = last_release(site.folder / "last")
    site.releases.put_crds(last / "charts" / "whetstone-crds")
    site.releases.put_operator(site.values("1"), last / "charts" / "whetstone")
    operator = start(source=last)
    site.live()
    before, jobs, token = site.template(), site.uids("Job"), site.value("server-token", "token")
    site.team.benchmark()
    site.team.wait_job("run", "run")

    site.releases.put_crds()
    site.releases.put_operator(site.values("1"))
    operator = take_over(operator, start)
    looks = operator.metric("whetstone_reconcile_total", controller="modelservers")
    site.api.delete("BenchmarkRun", "run", namespace=site.team.namespace)
    eventually(lambda: site.uids("Job") == jobs, what="the benchmark is gone, and the training goes on")
    # While a benchmark measured it, no change of the server would have been carried out.
    eventually(
        lambda: operator.metric("whetstone_reconcile_total", controller="modelservers") > looks,
        what="a look at the server that is free again",
    )
    assert differences(before, site.template()) == OF_THIS_RELEASE
    # Pods that wait for their turn know no other one.
    assert site.value("server-access", "token") == token

    site.releases.helm("rollback", OPERATOR_RELEASE, "1")
    operator.stop()
    wait_looked(start(source=last), "modelservers")
    assert differences(before, site.template()) == set()
    assert site.value("server-token", "token") == token
    assert site.uids("Job") == jobs


def last_release(folder: Path) -> Path:
    """Unpack the code and charts of the last tagged release; of a fixed commit while there is none."""
    tags = subprocess.run(["git", "tag", "--merged", "--sort=-v:refname"], cwd=CHECKOUT, capture_output=True, text=True)
    tag = next(iter(tags.stdout.split()), BEFORE_OPERATIONS)
    archive = ["git", "archive", "--format=tar", tag, "operator", "charts"]
    packed = subprocess.run(archive, cwd=CHECKOUT, capture_output=True, check=False)
    if packed.returncode:
        pytest.skip(f"this checkout has no history back to {tag}: {packed.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archived:
        archived.extractall(folder, filter="data")
    return folder


def wait_looked(process: OperatorProcess, *kinds: str) -> None:
    """Wait until an operator has looked at the objects of kinds."""
    for kind in kinds:
        eventually(
            lambda kind=kind: process.metric("whetstone_reconcile_total", controller=kind) > 0,
            what=f"a look at the {kind}",
        )


def take_over(old: OperatorProcess, start: Callable[..., OperatorProcess]) -> OperatorProcess:
    """Replace the operator by the one that the release now says, and wait until it has looked at everything."""
    old.stop()
    process = start()
    wait_looked(process, "modelservers", "loratrainingjobs")
    return process
