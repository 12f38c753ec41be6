"""Run a set of instances, without a cluster: `python -m whetstone_agent.tooluse run --help`.

`python -m whetstone_agent.tooluse compare one/ other/ --out pairs.jsonl` makes preferences between whole trajectories
of two runs; `python -m whetstone_agent.tooluse agreement --labelled judged.json --judge-model name` says how well a
judge agrees with people.
"""

import argparse
import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from whetstone_agent.agents.errors import ModelRefusedError
from whetstone_agent.api_key import NO_KEY
from whetstone_agent.tooluse import training_rows
from whetstone_agent.tooluse.agents import ModelAgent, ModelSettings
from whetstone_agent.tooluse.agreement import agreement, read_labelled
from whetstone_agent.tooluse.api_client import ApiClient
from whetstone_agent.tooluse.api_tools import Mode
from whetstone_agent.tooluse.conversation import Protocol
from whetstone_agent.tooluse.elasticsearch import Elasticsearch
from whetstone_agent.tooluse.env import EnvironmentSettings, ToolUseEnv
from whetstone_agent.tooluse.errors import ApiError, EnvironmentDataError
from whetstone_agent.tooluse.expert import ExpertMode, ExpertSettings
from whetstone_agent.tooluse.judges import PROMPTS, Judge, JudgeFailedError, Matter
from whetstone_agent.tooluse.runs import AnotherRunError, RunSummary, read_run, run_set
from whetstone_agent.tooluse.scorers import ScorerName
from whetstone_agent.tooluse.toolbox import ToolSettings, TopKBy
from whetstone_agent.tooluse.world import World


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the command line says; return 1 when it cannot be done."""
    options = _parser().parse_args(argv)
    try:
        return _COMMANDS[options.command](options)
    except (EnvironmentDataError, AnotherRunError, ModelRefusedError, JudgeFailedError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except ValidationError as error:
        said = "; ".join(f"{'.'.join(map(str, one['loc'])) or 'settings'}: {one['msg']}" for one in error.errors())
        sys.stderr.write(f"expert: {said}\n")
        return 1


def _run(options: argparse.Namespace) -> int:
    expert = ExpertSettings(
        mode=options.expert,
        epsilon=options.expert_epsilon,
        seed=options.seed,
        initial_limit=options.expert_initial_limit,
        recent_limit=options.expert_recent_limit,
        alternates=options.alternates or options.branches > 0,
        branches=options.branches,
    )
    settings = EnvironmentSettings(
        horizon=options.horizon,
        scorer=options.scorer,
        tools=ToolSettings(mode=options.mode, top_k=options.top_k, top_k_by=options.top_k_by),
    )
    world = World.open(options.world, options.out / "indexes")
    instances = world.read(options.instances)
    url = options.api_url or (world.api.server if world.api else None)
    if world.api is not None and url is None:
        raise EnvironmentDataError(["the API's document names no server: give --api-url"])
    with contextlib.ExitStack() as stack:
        key = _secret("--api-key-env", options.api_key_env)
        headers = {options.api_key_header: f"{options.api_key_prefix}{key}"} if key else {}
        api = stack.enter_context(ApiClient(url, headers=headers)) if url else None
        judge, judge_asked = _judge(options, "judge", stack)
        overseer, overseer_asked = _judge(options, "overseer", stack)
        witness, witness_asked = _judge(options, "witness", stack)
        if witness is not None and expert.mode not in (ExpertMode.RANDOM, ExpertMode.INFORMED):
            raise EnvironmentDataError(["give --witness-model with --expert Random or Informed, and with no other"])
        search = _search(options, world, stack)
        if (judge is None) == (options.scorer is ScorerName.JUDGE):
            raise EnvironmentDataError(["give --judge-model with --scorer Judge, and with no other"])
        agent, asked = None, {}
        if options.model:
            model = ModelSettings(
                url=options.model_url,
                model=options.model,
                temperature=options.temperature,
                max_tokens=options.max_tokens,
                seed=options.seed,
            )
            model_key = os.environ.get("OPENAI_API_KEY", NO_KEY)
            agent = stack.enter_context(ModelAgent(model, api_key=model_key))
            asked = {name: value for name, value in asdict(model).items() if name != "url"}
        elif expert.mode is not ExpertMode.GROUND_TRUTH or expert.alternates:
            raise EnvironmentDataError(["there is nobody to act: give --model, or --expert GroundTruth"])
        summary = run_set(
            instances,
            options.out,
            make_env=lambda: ToolUseEnv(
                instances, world, api=api, settings=settings, judge=judge, retriever=search, witness=witness
            ),
            agent=agent,
            asked={
                "instances": hashlib.sha256(options.instances.read_bytes()).hexdigest(),
                "world": world.digest,
                "model": asked,
                "protocol": options.protocol,
                "environment": asdict(settings),
                "expert": expert.model_dump(mode="json"),
                "judge": judge_asked,
                "overseer": overseer_asked,
                "witness": witness_asked,
                "elasticsearch": None if search is None else options.elasticsearch_index_prefix,
            },
            overseer=overseer,
            expert=expert,
            protocol=options.protocol,
            concurrency=options.concurrency,
        )
    sys.stdout.write(_told(summary))
    return 0


def _search(options: argparse.Namespace, world: World, stack: contextlib.ExitStack) -> Elasticsearch | None:
    """Return the Elasticsearch that searches, which has an index for each collection; None where the indexes here do.

    Raises:
        EnvironmentDataError: It does not answer, refuses the key or lacks an index.
    """
    if options.elasticsearch_url is None:
        return None
    try:
        search = Elasticsearch(
            options.elasticsearch_url,
            authorization=_secret("--elasticsearch-authorization-env", options.elasticsearch_authorization_env) or None,
            authority=options.elasticsearch_authority,
            index_prefix=options.elasticsearch_index_prefix,
        )
    except OSError as error:
        raise EnvironmentDataError([f"--elasticsearch-authority: {error}"]) from error
    stack.enter_context(search)
    try:
        search.check(world.collections)
    except ApiError as error:
        raise EnvironmentDataError([f"--elasticsearch-url: {error}"]) from error
    return search


def _judge(
    options: argparse.Namespace, role: str, stack: contextlib.ExitStack
) -> tuple[Judge | None, dict[str, Any] | None]:
    """Return the model of a role, and what a run records of it: its prompts too."""
    given = vars(options)
    if not given[f"{role}_model"]:
        return None, None
    settings = ModelSettings(url=given[f"{role}_url"], model=given[f"{role}_model"])
    key = _secret(f"--{role}-key-env", given[f"{role}_key_env"]) or NO_KEY
    matters = _MATTERS[role]
    asked = {name: value for name, value in asdict(settings).items() if name in ("model", "temperature", "seed")}
    prompts = {str(one): PROMPTS[one] for one in matters}
    return stack.enter_context(Judge(settings, api_key=key)), {**asked, "prompts": prompts}


def _secret(option: str, variable: str | None) -> str:
    """Return what the environment variable holds that an option names; nothing where it names none.

    Raises:
        EnvironmentDataError: It is not set: all that asks for it would be refused.
    """
    if variable is None:
        return ""
    value = os.environ.get(variable, "")
    if not value:
        raise EnvironmentDataError([f"{option}: the environment variable {variable} is not set: export it"])
    return value


def _agreement(options: argparse.Namespace) -> int:
    rows = read_labelled(options.labelled)
    with contextlib.ExitStack() as stack:
        judge, _ = _judge(options, "judge", stack)
        assert judge is not None
        found = agreement(judge, rows)
    sys.stdout.write(f"{found.model_dump_json(by_alias=True, indent=1)}\n")
    return 0


def _compare(options: argparse.Namespace) -> int:
    rows = list(training_rows.trajectory_preferences([read_run(one) for one in options.runs]))
    options.out.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    sys.stdout.write(f"{options.out}: {len(rows)} pairs\n")
    return 0


def _told(summary: RunSummary) -> str:
    lines = [f"{'scenario, rung of tool use':32} {'success':>8} {'95 % interval':>16} {'of':>5}"]
    for name, one in [("all", summary.success), *summary.by_scenario.items(), *summary.by_rung.items()]:
        if one.rate is None or one.low is None or one.high is None:
            lines.append(f"{name:32} {'none':>8} {'':>16} {0:5d}")
        else:
            interval = f"{one.low:.3f} to {one.high:.3f}"
            lines.append(f"{name:32} {one.rate:8.3f} {interval:>16} {one.scored:5d}")
    counts = ", ".join(f"{name} {count}" for name, count in summary.ends.items())
    return "\n".join([*lines, f"void: {summary.void} of {summary.instances}; ends: {counts}"]) + "\n"


_MATTERS = {
    "judge": (Matter.ANSWER, Matter.DECLINE),
    "overseer": (Matter.HOPELESS,),
    "witness": (Matter.WITNESSED,),
}
_COMMANDS = {"run": _run, "compare": _compare, "agreement": _agreement}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m whetstone_agent.tooluse", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run a set of instances; run again, it goes on")
    run.add_argument("--world", type=Path, required=True, help="folder with collections/ and openapi.yaml")
    run.add_argument("--instances", type=Path, required=True, help="file of instances")
    run.add_argument("--out", type=Path, required=True, help="folder for the results")
    run.add_argument("--concurrency", type=_positive, default=4, help="episodes at a time (default %(default)s)")
    _environment_flags(run)
    _agent_flags(run)
    _judge_flags(run, "judge", needed=False)
    _judge_flags(run, "overseer", needed=False)
    _judge_flags(run, "witness", needed=False)
    _search_flags(run)
    compare = commands.add_parser("compare", help="preferences between whole trajectories of runs by different agents")
    compare.add_argument("runs", type=Path, nargs="+", help="folders of results")
    compare.add_argument("--out", type=Path, required=True, help="file to write")
    labelled = commands.add_parser("agreement", help="how well a judge agrees with people")
    labelled.add_argument("--labelled", type=Path, required=True, help="file of labelled answers")
    _judge_flags(labelled, "judge", needed=True)
    return parser


def _environment_flags(run: argparse.ArgumentParser) -> None:
    run.add_argument("--api-url", help="where the API is (default: the first server of its document)")
    run.add_argument("--api-key-env", help="environment variable with the API's key")
    run.add_argument("--api-key-header", default="Authorization", help="header for it (default %(default)s)")
    run.add_argument("--api-key-prefix", default="Bearer ", help="what stands before it (default 'Bearer ')")
    _choice(run, "--mode", Mode.REST, "granularity of the API's tools")
    _choice(run, "--scorer", ScorerName.NORMALIZED, "how answers are compared")
    _choice(run, "--top-k-by", TopKBy.CONFIGURATION, "who says how many documents a search gives")
    run.add_argument("--top-k", type=_positive, default=3, help="documents of a search (default %(default)s)")
    run.add_argument("--horizon", type=_positive, default=10, help="steps at most (default %(default)s)")


def _agent_flags(run: argparse.ArgumentParser) -> None:
    run.add_argument("--model", help="name of the model, of an adapter or of an alias")
    run.add_argument("--model-url", default="http://127.0.0.1:8000/v1", help="its API (default %(default)s)")
    run.add_argument("--temperature", type=float, default=0.0)
    run.add_argument("--max-tokens", type=_positive, default=1024)
    run.add_argument("--seed", type=int, default=0, help="of the sampling and of expert Random")
    _choice(run, "--protocol", Protocol.NATIVE, "how tools are called")
    _choice(run, "--expert", ExpertMode.NONE, "when the expert acts")
    run.add_argument("--expert-epsilon", type=float, default=0.5, help="Random: probability (default %(default)s)")
    run.add_argument(
        "--expert-initial-limit", type=int, default=2, help="Informed: unaided steps (default %(default)s)"
    )
    run.add_argument("--expert-recent-limit", type=int, default=2, help="Informed: steps seen (default %(default)s)")
    run.add_argument("--branches", type=int, default=0, help="other ways gone to their end, of an episode")
    run.add_argument("--alternates", action="store_true", help="keep the other one's action at every step")


def _judge_flags(parser: argparse.ArgumentParser, role: str, *, needed: bool) -> None:
    parser.add_argument(f"--{role}-model", required=needed, help=f"model of the {role}")
    parser.add_argument(f"--{role}-url", default="http://127.0.0.1:8000/v1", help="its API (default %(default)s)")
    parser.add_argument(f"--{role}-key-env", help="environment variable with its key")


def _search_flags(run: argparse.ArgumentParser) -> None:
    run.add_argument("--elasticsearch-url", help="searches in place of the indexes that are made here")
    run.add_argument("--elasticsearch-authorization-env", help="environment variable with its header Authorization")
    run.add_argument("--elasticsearch-authority", type=Path, help="its certificate authority, PEM")
    run.add_argument("--elasticsearch-index-prefix", default="", help="stands before a collection's name")


def _choice(parser: argparse.ArgumentParser, flag: str, default: StrEnum, told: str) -> None:
    kind = type(default)
    parser.add_argument(flag, type=kind, choices=list(kind), default=default, help=f"{told} (default {default})")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {number}")
    return number


if __name__ == "__main__":
    sys.exit(main())
