"""The environment, with Gymnasium's interface (https://gymnasium.farama.org/api/env/).

An episode is one instance. Each step is one action as text; what comes back is text too: what the tool gave, or what
was wrong with the call. `FINAL` terminates, unless its answer is right and the user has a further question, which then
comes back; a horizon, a loop and an API that fails truncate.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import gymnasium
from gymnasium import spaces

from whetstone_agent.tooluse.actions import Action, MalformedActionError, final, parse_action
from whetstone_agent.tooluse.api_client import ApiClient
from whetstone_agent.tooluse.errors import ApiError, ApiNotJsonError, ApiRefusedError, ApiUnavailableError, NoIndexError
from whetstone_agent.tooluse.instances import Instance, Step
from whetstone_agent.tooluse.judges import Judge, JudgeFailedError, JudgeUnclearError
from whetstone_agent.tooluse.outcomes import End, StepCategory
from whetstone_agent.tooluse.retrieval import Document
from whetstone_agent.tooluse.scorers import UNABLE, ScorerName, declines, right
from whetstone_agent.tooluse.toolbox import Refusal, Toolbox, ToolSettings, make_toolbox
from whetstone_agent.tooluse.world import World

_ENDS: Final[dict[type[ApiError], End]] = {
    ApiUnavailableError: End.API_UNAVAILABLE,
    ApiNotJsonError: End.API_NOT_JSON,
    ApiRefusedError: End.API_REFUSED,
    NoIndexError: End.API_UNAVAILABLE,
}


class Retriever(Protocol):
    """Searches in collections of documents."""

    def search(self, collection: str, query: str, top_k: int) -> list[Document]:
        """Return the documents that fit a query best, best first; raises `ApiError` for what is no agent's doing."""


@dataclass(frozen=True, kw_only=True)
class EnvironmentSettings:
    """How episodes run.

    Args:
        horizon: Steps of an episode at most.
        repeated_actions: The same action that often in a row ends it.
        observation_characters: Characters of a tool's result that the agent is shown.
        scorer: How answers are compared.
        tools: How tools are offered.
    """

    horizon: int = 10
    repeated_actions: int = 3
    observation_characters: int = 4000
    scorer: ScorerName = ScorerName.NORMALIZED
    tools: ToolSettings = field(default_factory=ToolSettings)


class AnyText(spaces.Space[str]):
    """All text: `gymnasium.spaces.Text` knows a fixed alphabet only. Samples are small actions."""

    def __init__(self, samples: Sequence[str] = ("",), seed: int | None = None) -> None:
        super().__init__((), None, seed)
        self._samples = tuple(samples)

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Return one of the samples."""
        del mask, probability
        return self._samples[int(self.np_random.integers(len(self._samples)))]

    def contains(self, x: Any) -> bool:
        """Say whether it is text."""
        return isinstance(x, str)

    @property
    def is_np_flattenable(self) -> bool:
        """Text is no array."""
        return False


class ToolUseEnv(gymnasium.Env[str, str]):
    """Questions that are answered by calling tools.

    `reset(options={"instance": id})` begins that instance, `reset()` one drawn by the seed. `info` of both methods has
    `instance`; that of `step` has `category`, and at the end `end` and `success`.

    Args:
        instances: The instances; the world has what they name.
        world: What they are about.
        api: Client of the world's API, if it has one.
        settings: How episodes run.
        judge: Compares answers, with the scorer `Judge`.
        retriever: Searches in place of the world's own indexes.
        witness: Says whether the result of a call that is not in the trajectory tells what the next one of it is for;
            that one then counts as made.

    Raises:
        ValueError: The scorer is `Judge`, and there is none.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(
        self,
        instances: Sequence[Instance],
        world: World,
        *,
        api: ApiClient | None = None,
        settings: EnvironmentSettings | None = None,
        judge: Judge | None = None,
        retriever: Retriever | None = None,
        witness: Judge | None = None,
    ) -> None:
        self._witness = witness
        self._retriever: Retriever = retriever or world
        self.settings = settings or EnvironmentSettings()
        if (self.settings.scorer is ScorerName.JUDGE) != (judge is not None):
            raise ValueError("the scorer Judge needs a judge, and no other scorer has one")
        self._judge = judge
        self.action_space = AnyText([final(UNABLE).to_text(), final("").to_text(), "not an action"])
        self.observation_space = AnyText()
        self._instances = {one.id: one for one in instances}
        self._order = tuple(self._instances)
        self._world = world
        self._api = api
        self._ended = True

    @property
    def toolbox(self) -> Toolbox:
        """Tools of the instance that runs."""
        return self._toolbox

    @property
    def witness_silent(self) -> int:
        """Steps of the episode so far after which the witness said nothing that can be used."""
        return self._witness_silent

    @property
    def instance(self) -> Instance:
        """The instance that runs."""
        return self._toolbox.instance

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Begin an episode; return the question with the policy, and information.

        Raises:
            KeyError: `options` names an instance that there is not.
        """
        super().reset(seed=seed)
        wanted = (options or {}).get("instance")
        name = wanted if wanted is not None else self._order[int(self.np_random.integers(len(self._order)))]
        if name not in self._instances:
            raise KeyError(f"no instance {name!r}")
        instance = self._instances[name]
        self._toolbox = make_toolbox(instance, self._world, self.settings.tools)
        self._steps = 0
        self._ended = False
        self._violated = False
        self._seen: set[str] = set()
        self._row: list[str] = []
        self._witness_silent = 0
        self._further = instance.turns
        self._ask_next()
        policy = f"\n\nPolicy: {instance.tool_usage.strip()}" if instance.tool_usage.strip() else ""
        return f"{instance.question}{policy}", {"instance": instance.id}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Do one action.

        Raises:
            gymnasium.error.ResetNeeded: The episode has ended.
        """
        if self._ended:
            raise gymnasium.error.ResetNeeded("the episode has ended; call reset")
        self._steps += 1
        self._row = [*self._row[-self.settings.repeated_actions :], action]
        try:
            parsed = parse_action(action)
        except MalformedActionError as error:
            return self._result(_error(str(error)), StepCategory.MALFORMED)
        if parsed.answer is not None:
            return self._final(parsed.answer)
        resolved = self._toolbox.resolve(parsed)
        if isinstance(resolved, Refusal):
            self._violated = self._violated or resolved.category is StepCategory.FORBIDDEN
            return self._result(_error(resolved.message), resolved.category)
        try:
            observation, category = self._call(*resolved)
        except ApiError as error:
            return self._result(_error(str(error)), StepCategory.API_FAILED, end=_ENDS[type(error)])
        if category is StepCategory.UNHELPFUL and self._is_witnessed(action, observation):
            category = StepCategory.HELPFUL
        return self._result(observation, category)

    def ground_truth(self) -> list[Action]:
        """Return the actions that solve the instance with the tools that it has."""
        return [action for turn in self.instance.turns for action in self._truth(turn)]

    def next_expected(self) -> Action:
        """Return what ground truth does next, given what was done in the episode so far."""
        actions = self._truth(self._asked)
        return actions[self._left[0]] if self._asked.answerable and self._left else actions[-1]

    def _truth(self, turn: Instance) -> list[Action]:
        if not turn.answerable:
            return [final(UNABLE)]
        return [*(self._toolbox.render(step) for step in turn.trajectory), final(turn.answers[0])]

    def _ask_next(self) -> None:
        """Go on to the next question, of which nothing is done yet."""
        self._asked = self._further.pop(0)
        self._left = list(range(len(self._asked.trajectory)))
        # The same answer to another question is no loop.
        self._row = self._row[-1:]

    def foresee(self, action: str) -> StepCategory:
        """Return what a step would be at best, without doing it: the API is not called."""
        try:
            parsed = parse_action(action)
        except MalformedActionError:
            return StepCategory.MALFORMED
        if parsed.answer is not None:
            try:
                return self._verdict(parsed.answer)
            except (JudgeUnclearError, JudgeFailedError):
                return StepCategory.UNJUDGED
        resolved = self._toolbox.resolve(parsed)
        if isinstance(resolved, Refusal):
            return resolved.category
        step, top_k = resolved
        try:
            found = {one.id for one in self._search(step, top_k)} if step.searches else set()
        except ApiError:
            return StepCategory.API_FAILED
        return self._worth(step, found, repeated=_key(step) in self._seen)[0]

    def _final(self, answer: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        try:
            category = self._verdict(answer)
        except JudgeUnclearError as error:
            return self._result(_error(str(error)), StepCategory.UNJUDGED, end=End.JUDGE_UNCLEAR)
        except JudgeFailedError as error:
            return self._result(_error(str(error)), StepCategory.UNJUDGED, end=End.JUDGE_FAILED)
        success = category is StepCategory.CORRECT and not self._violated
        if success and self._further:
            self._ask_next()
            return self._result(self._asked.question, category)
        return self._result("", category, end=End.FINAL, success=success)

    def _verdict(self, answer: str) -> StepCategory:
        if self._is_right(answer):
            return StepCategory.CORRECT
        if not self._asked.answerable:
            return StepCategory.SHOULD_DECLINE
        return StepCategory.WRONGLY_DECLINED if declines(answer) else StepCategory.INCORRECT

    def _is_right(self, answer: str) -> bool:
        asked = self._asked
        if self._judge is None:
            return right(asked, answer, self.settings.scorer)
        if not answer.strip():
            return False
        if asked.answerable:
            return self._judge.matches(asked.question, asked.answers, answer)
        return self._judge.declines(asked.question, answer)

    def _search(self, step: Step, top_k: int) -> list[Document]:
        return self._retriever.search(step.source, str(step.args["query"]), top_k)

    def _call(self, step: Step, top_k: int) -> tuple[str, StepCategory]:
        repeated = _key(step) in self._seen
        self._seen.add(_key(step))
        if step.searches:
            found = self._search(step, top_k)
            listed = [{"id": one.id, "title": one.title, "text": one.text} for one in found]
            return self._shown({"documents": listed}), self._count(step, {one.id for one in found}, repeated=repeated)
        if self._api is None:
            raise ApiUnavailableError("no client of the API was given")
        answer = self._api.call(self._world.operations[step.tool], step.args)
        if not answer.accepted:
            return self._shown({"status": answer.status, "error": answer.body}), StepCategory.REJECTED
        body = answer.body
        if step.field is not None and isinstance(body, dict):
            body = {step.field: body.get(step.field)}
        return self._shown(body), self._count(step, set(), repeated=repeated)

    def _count(self, step: Step, found: set[str], *, repeated: bool) -> StepCategory:
        category, place = self._worth(step, found, repeated=repeated)
        if place is not None:
            self._left.remove(place)
        return category

    def _is_witnessed(self, action: str, observation: str) -> bool:
        """Say whether a result tells what the next call of the trajectory is for, which then counts as made."""
        if self._witness is None or not self._left or not self._asked.answerable:
            return False
        wanted = self._toolbox.render(self._asked.trajectory[self._left[0]]).to_text()
        try:
            told = self._witness.witnesses(self._asked.question, wanted=wanted, made=action, result=observation)
        except (JudgeUnclearError, JudgeFailedError):
            # The expert then makes a call that might have been spared.
            self._witness_silent += 1
            return False
        if told:
            del self._left[0]
        return told

    def _worth(self, step: Step, found: set[str], *, repeated: bool) -> tuple[StepCategory, int | None]:
        """Return what a call is worth, and the place in the trajectory that it fills."""
        for place in self._left:
            if _same(self._asked.trajectory[place], step, found):
                return StepCategory.EXPECTED if place == self._left[0] else StepCategory.HELPFUL, place
        return StepCategory.REPEATED if repeated else StepCategory.UNHELPFUL, None

    def _shown(self, result: Any) -> str:
        return json.dumps(result, ensure_ascii=False)[: self.settings.observation_characters]

    def _result(
        self, observation: str, category: StepCategory, *, end: End | None = None, success: bool = False
    ) -> tuple[str, float, bool, bool, dict[str, Any]]:
        limit = self.settings.repeated_actions
        if end is None and self._row[-limit:] == [self._row[-1]] * limit:
            end = End.LOOP
        if end is None and self._steps >= self.settings.horizon:
            end = End.HORIZON
        self._ended = end is not None
        info: dict[str, Any] = {"instance": self.instance.id, "category": category}
        if end is not None:
            info |= {"end": end, "success": success, "void": end.void, "violated": self._violated}
        return observation, float(success), end is End.FINAL, end not in (None, End.FINAL), info


def _key(step: Step) -> str:
    return json.dumps(step.model_dump(), sort_keys=True)


def _error(message: str) -> str:
    return json.dumps({"error": message}, ensure_ascii=False)


def _same(wanted: Step, made: Step, found: set[str]) -> bool:
    if wanted.tool != made.tool:
        return False
    if wanted.searches:
        return wanted.source == made.source and (not wanted.documents or bool(found & set(wanted.documents)))
    return wanted.args == made.args and made.field in (None, wanted.field)
