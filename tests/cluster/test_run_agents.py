"""Runs through the operator: `terminus-2`, an agent from a ConfigMap, tasks of several steps, a sealed verifier."""

from typing import Any

import pytest
from support.obedient_runs import Runs, rewards
from support.waiting import eventually

pytestmark = pytest.mark.cluster

CODE = """
import os, re
from harbor.agents.base import BaseAgent
from openai import AsyncOpenAI


class Mine(BaseAgent):
    def __init__(self, *args, shell="sh", **kwargs):
        super().__init__(*args, **kwargs)
        self.shell = shell

    @staticmethod
    def name():
        return "mine"

    def version(self):
        return "1"

    async def setup(self, environment):
        pass

    async def run(self, instruction, environment, context):
        asked = [{"role": "user", "content": instruction}]
        reply = await AsyncOpenAI().chat.completions.create(model=os.environ["OPENAI_MODEL"], messages=asked)
        command = re.search(r"```bash\\n(.*)\\n```", reply.choices[0].message.content)[1]
        await environment.exec(f"{self.shell} -c '{command}'")
"""
VERIFY = "#!/bin/sh\ncp /app/{file} /logs/verifier/reward.txt || echo 0 >/logs/verifier/reward.txt\n"


def ended(runs: Runs, name: str, **fields: Any) -> dict[str, list[float | None]]:
    """Run a suite of the run's name to its end, and return the rewards."""
    runs.start(name, name, **fields)
    run = runs.end(name)
    assert run["status"]["results"]["void"] == 0
    eventually(lambda: not runs.trial_pods(name), what="no trial pod is left", seconds=60)
    return rewards(runs.artifact(name))


@pytest.mark.long
def test_terminus_2_types_in_images_without_tmux_in_two_shards(runs: Runs) -> None:
    commands = {f"typed-{number}": f"echo 0.{number} >answer.txt" for number in range(4)}
    runs.write_tasks("typed", commands)
    found = ended(runs, "typed", agent={"name": "terminus-2", "parameters": {"maxTurns": 8}}, shards=2)
    assert found == {f"typed-{number}": [number / 10] for number in range(4)}
    pods = runs.runner_pods("typed")
    assert sorted(pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] for pod in pods) == [
        "0",
        "1",
    ]


def test_agent_of_a_config_map_works_with_its_options(runs: Runs) -> None:
    code = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mine"}, "data": {"mine.py": CODE}}
    runs.kube.apply(code, namespace=runs.namespace)
    # Only bash knows this word.
    runs.write_tasks("mine", {"good": "[[ 1 == 1 ]] && echo 1 >answer.txt", "half": "echo 0.5 >answer.txt"})
    agent = {"importPath": "mine:Mine", "configMapRef": {"name": "mine"}, "options": {"shell": "bash"}}
    assert ended(runs, "mine", agent=agent) == {"good": [1.0], "half": [0.5]}
    # Its container ends at once after the runner's, instead of when the pod's grace is over.
    [pod] = runs.runner_pods("mine")
    [own] = pod["status"]["initContainerStatuses"]
    assert own["state"]["terminated"]["exitCode"] == 0


@pytest.mark.long
def test_steps_are_scored_each_and_a_sealed_verifier_sees_the_artifacts_only(runs: Runs) -> None:
    steps = 'multi_step_reward_strategy = "mean"\n[[steps]]\nname = "first"\n[[steps]]\nname = "second"\n'
    texts = {}
    for step, reward in (("first", "1"), ("second", "0.5")):
        texts[f"steps/{step}/instruction.md"] = f"Step {step}.\nRun: echo {reward} >{step}.txt\n"
        texts[f"steps/{step}/tests/test.sh"] = VERIFY.format(file=f"{step}.txt")
    runs.write_task("sorts", "in-steps", texts, settings=steps)
    sealed = 'artifacts = ["/app/answer.txt"]\n[verifier]\nenvironment_mode = "separate"\n'
    texts = {
        "instruction.md": "Seal.\nRun: echo 0.25 >answer.txt; echo 1 >hidden.txt\n",
        "tests/test.sh": "#!/bin/sh\n[ -e /app/hidden.txt ] && exit\ncp /app/answer.txt /logs/verifier/reward.txt\n",
    }
    runs.write_task("sorts", "sealed", texts, settings=sealed)
    assert ended(runs, "sorts") == {"in-steps": [0.75], "sealed": [0.25]}
