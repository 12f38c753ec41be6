"""The trial's pod: bounded, owned, without rights, under a name of its own."""

import contextlib
import os
import signal
import subprocess
from dataclasses import replace

import pytest
from whetstone_agent.environment.cluster import Runner
from whetstone_agent.environment.commands import command_script
from whetstone_agent.environment.manifest import TMUX, TrialPod, pod_name, pod_selector, trial_pod

POD = TrialPod(
    runner=Runner(namespace="team", pod_name="candidate-run-1a2b3c4d-xyz", pod_uid="u-1"),
    benchmark_run="candidate",
    session="create-file-e5578677__a8agdXP__env",
    nonce="1",
    image="registry/task:1",
    deadline_seconds=900,
    requests={"cpu": "50m"},
    limits={"memory": "256Mi"},
    env={"B": "2", "A": "1"},
)


def test_pod_belongs_to_the_runner_and_is_bounded_in_time() -> None:
    manifest = trial_pod(POD)
    assert manifest["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Pod", "name": "candidate-run-1a2b3c4d-xyz", "uid": "u-1"}
    ]
    assert manifest["spec"]["activeDeadlineSeconds"] == 900
    assert manifest["spec"]["terminationGracePeriodSeconds"] == 1
    assert manifest["spec"]["restartPolicy"] == "Never"


def test_a_pod_that_is_told_to_end_does_not_succeed() -> None:
    shell, option, script = trial_pod(POD)["spec"]["containers"][0]["command"]
    listening = script.replace("while", "echo listening; while", 1)
    with subprocess.Popen([shell, option, listening], stdout=subprocess.PIPE, start_new_session=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"listening\n"
        first.terminate()
        assert first.wait() == 128 + signal.SIGTERM
        # The sleep that the shell may have started outlives it; one told to end sooner started none.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(first.pid, signal.SIGKILL)


def test_pod_has_no_token_and_no_links_to_services() -> None:
    spec = trial_pod(POD)["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False
    assert spec["containers"][0]["securityContext"]["allowPrivilegeEscalation"] is False


def test_outside_a_pod_there_is_no_owner() -> None:
    assert "ownerReferences" not in trial_pod(replace(POD, runner=Runner(namespace="team")))["metadata"]


def test_each_try_of_a_trial_has_a_name_of_its_own() -> None:
    names = {pod_name(replace(POD, nonce=str(nonce))) for nonce in range(50)}
    assert len(names) == 50


@pytest.mark.parametrize("session", ["x" * 200, "Ünï_code..task__Ab", "-a-"])
def test_names_are_dns_labels(session: str) -> None:
    name = pod_name(replace(POD, session=session, benchmark_run="r" * 40))
    assert len(name) <= 63
    assert name.strip("-") == name
    assert all(letter in "abcdefghijklmnopqrstuvwxyz0123456789-" for letter in name)


def test_labels_are_what_the_sweeper_selects() -> None:
    labels = trial_pod(POD)["metadata"]["labels"]
    wanted = dict(part.split("=") for part in pod_selector("candidate").split(","))
    assert wanted.items() <= labels.items()


def test_command_script_quotes_what_it_is_given() -> None:
    script = command_script("echo hi", cwd="/a b", env={"X": "it's"}, user=None)
    assert script == "export X='it'\"'\"'s'\ncd '/a b' || exit 1\necho hi"


def test_another_user_is_only_asked_for_when_root() -> None:
    script = command_script("id", cwd=None, env={}, user="agent")
    assert 'if [ "$(id -u)" = 0 ]; then exec su' in script
    assert script.endswith("\nid")


def test_tmux_is_copied_by_an_init_container_only_where_it_is_needed() -> None:
    assert "initContainers" not in trial_pod(POD)["spec"]
    spec = trial_pod(replace(POD, tmux_image="runner:1"))["spec"]
    (init,) = spec["initContainers"]
    assert (init["image"], init["command"][2]) == ("runner:1", f"{TMUX}/.")
    (mount,) = spec["containers"][0]["volumeMounts"]
    assert (mount["name"], mount["mountPath"], mount["readOnly"]) == (spec["volumes"][0]["name"], TMUX, True)
    assert init["volumeMounts"][0]["name"] == mount["name"]


def test_the_registrys_secrets_are_the_runners() -> None:
    assert "imagePullSecrets" not in trial_pod(POD)["spec"]
    assert trial_pod(replace(POD, pull_secrets=("a", "b")))["spec"]["imagePullSecrets"] == [
        {"name": "a"},
        {"name": "b"},
    ]
