"""Conversations of a trial, as messages that chat templates take.

Where they are found, best first: `messages.jsonl` of our own agents (to the character what the model saw),
`all_messages` in the agent's metadata (terminus-2 keeps them when asked to), and the trajectory in Harbor's Agent
Trajectory Interchange Format, whose tool calls and observations become messages.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whetstone_api.run_artifact import TRIAL_FOLDERS, TrialScore

Message = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Episode:
    """One conversation.

    Args:
        trial: Harbor's name of the trial.
        reward: Reward of the trial; of the step, in a task of several.
        messages: Up to the assistant's last turn.
        tools: Functions that were offered, where the trajectory says so.
    """

    trial: str
    reward: float
    messages: list[Message]
    tools: list[dict[str, Any]] | None = None


def read_episodes(output: Path, trial: TrialScore) -> list[Episode]:
    """Return the conversations of a scored trial: one, or one a step that was reached. Unreadable ones are left out.

    Args:
        output: Folder of the run's results.
        trial: The trial.
    """
    folders = [found for name in TRIAL_FOLDERS for found in sorted(output.glob(f"{name}/*/{trial.trial}"))]
    folder = next(iter(folders), None)
    if folder is None or trial.reward is None:
        return []
    if trial.steps is None:
        places = [(folder / "agent", trial.reward)]
    else:
        places = [(folder / "steps" / one.name / "agent", one.reward) for one in trial.steps if one.reward is not None]
    found = []
    for place, reward in places:
        messages, tools = _conversation(place, folder)
        while messages and messages[-1]["role"] != "assistant":
            messages = messages[:-1]
        if any(message["role"] == "user" for message in messages):
            found.append(Episode(trial=trial.trial, reward=reward, messages=messages, tools=tools))
    return found


def _conversation(agent: Path, trial: Path) -> tuple[list[Message], list[dict[str, Any]] | None]:
    try:
        said = json.loads((agent / "messages.jsonl").read_text().splitlines()[0])
        return said["messages"], said.get("tools")
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        pass
    try:
        said = json.loads((trial / "result.json").read_text())["agent_result"]["metadata"]["all_messages"]
        return [{"role": one["role"], "content": _text(one["content"])} for one in said], None
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        pass
    try:
        trajectory = json.loads((agent / "trajectory.json").read_text())
        return from_atif(trajectory["steps"]), (trajectory.get("agent") or {}).get("tool_definitions")
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return [], None


def from_atif(steps: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Return the messages of a trajectory in ATIF: tool calls stay calls, observations answer them."""
    messages: list[Message] = []
    for step in steps:
        text = _text(step.get("message"))
        if step["source"] != "agent":
            messages.append({"role": step["source"], "content": text})
            continue
        calls = [
            {
                "id": call["tool_call_id"],
                "type": "function",
                "function": {"name": call["function_name"], "arguments": call["arguments"]},
            }
            for call in step.get("tool_calls") or []
        ]
        messages.append({"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})})
        ids = [call["id"] for call in calls]
        for number, result in enumerate((step.get("observation") or {}).get("results") or []):
            answered = result.get("source_call_id") or (ids[number] if number < len(ids) else None)
            content = _text(result.get("content"))
            if answered is None:
                messages.append({"role": "user", "content": content})
            else:
                messages.append({"role": "tool", "tool_call_id": answered, "content": content})
    return messages


def _text(content: Any) -> str:
    """Return a message's text; of several parts, those that are text."""
    if isinstance(content, list):
        return "\n".join(str(part["text"]) for part in content if part.get("text"))
    return "" if content is None else str(content)
