"""One episode: the agent, and now and then the expert, on one instance; and what is kept of it."""

from enum import StrEnum
from typing import Any

from pydantic import Field
from whetstone_api.wire import WireModel

from whetstone_agent.tooluse.agents import Agent, ContextOutgrownError, ModelFailedError, UsedUpError
from whetstone_agent.tooluse.conversation import Conversation, Protocol, Turn, same_action
from whetstone_agent.tooluse.env import ToolUseEnv
from whetstone_agent.tooluse.expert import ExpertMode, ExpertSettings
from whetstone_agent.tooluse.instances import Availability, Order
from whetstone_agent.tooluse.judges import Judge, JudgeFailedError, JudgeUnclearError
from whetstone_agent.tooluse.outcomes import End, StepCategory


class Actor(StrEnum):
    """Who does a step."""

    AGENT = "Agent"
    EXPERT = "Expert"


class Alternate(WireModel):
    """What the other one would have done."""

    actor: Actor
    action: str
    category: StepCategory
    """What the step would have been, at best: the API was not called."""
    message: dict[str, Any]


class StepRecord(WireModel):
    """One step."""

    actor: Actor
    action: str
    category: StepCategory
    reward: float
    observation: str
    alternate: Alternate | None = None


class Assistance(WireModel):
    """How the expert took part."""

    settings: ExpertSettings
    tracker: list[int]
    """For each step 1 where the expert acted, else 0."""


class EpisodeRecord(WireModel):
    """A finished episode."""

    sample_id: str
    """Id of the instance."""
    success: bool
    void: bool
    """It says nothing about the agent: API or model server failed."""
    terminated: bool
    truncated: bool
    end: End
    error: str | None = None
    """What the model's server said, where it failed."""
    violated: bool = False
    """The policy was violated."""
    total_time_steps: int
    expert_assistance: Assistance
    tool_availability: Availability
    order: Order | None = None
    tags: list[str] = Field(default_factory=list)
    """What the instance is tagged with."""
    answerable: bool
    task: str
    """Digest of the question, by which a benchmark finds what a model was trained on."""
    protocol: Protocol
    steps: list[StepRecord]
    branch_at: int | None = None
    """For the other way to go on from a step of an episode: that step, counted from 0."""
    overseer_silent: int = 0
    """Steps after which the overseer said nothing that can be used."""
    witness_silent: int = 0
    """Steps after which the expert's witness said nothing that can be used."""
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    prompt_tokens: int = Field(default=0, ge=0)
    completion_tokens: int = Field(default=0, ge=0)


def run_episode(
    env: ToolUseEnv,
    instance: str,
    *,
    agent: Agent | None,
    expert: ExpertSettings | None = None,
    protocol: Protocol = Protocol.NATIVE,
    overseer: Judge | None = None,
) -> EpisodeRecord:
    """Run an instance to its end.

    Args:
        env: The environment; nobody else uses it meanwhile.
        instance: Id of the instance.
        agent: Who acts; may be missing where the expert does every step and no alternates are kept.
        expert: When the expert acts.
        protocol: How tools are called.
        overseer: Ends the episode where it says that more steps will not help.
    """
    return _Run(
        env, instance, agent=agent, expert=expert or ExpertSettings(), protocol=protocol, overseer=overseer
    ).run()


def run_branches(
    env: ToolUseEnv, record: EpisodeRecord, *, agent: Agent | None, limit: int, overseer: Judge | None = None
) -> list[EpisodeRecord]:
    """Go the other way from the steps of an episode at which one of two actions is known to be better, to the end.

    The steps before it are done again, so the API is called again; then the one acts who did not, alone.

    Args:
        env: The environment; nobody else uses it meanwhile.
        record: A finished episode with alternates.
        agent: Who acts where the other way is the agent's.
        limit: Branches at most, from the first steps on.
        overseer: Ends hopeless episodes.
    """
    found: list[EpisodeRecord] = []
    for place, step in enumerate(record.steps):
        other = step.alternate
        if other is None or other.category.optimal == step.category.optimal or len(found) == limit:
            continue
        alone = ExpertMode.GROUND_TRUTH if other.actor is Actor.EXPERT else ExpertMode.NONE
        run = _Run(
            env,
            record.sample_id,
            agent=agent,
            expert=ExpertSettings(mode=alone),
            protocol=record.protocol,
            overseer=overseer,
        )
        found.append(run.branch(record, place, other))
    return found


class _Run:
    def __init__(
        self,
        env: ToolUseEnv,
        instance: str,
        *,
        agent: Agent | None,
        expert: ExpertSettings,
        protocol: Protocol,
        overseer: Judge | None,
    ) -> None:
        self._overseer = overseer
        self._silent = 0
        question, _ = env.reset(options={"instance": instance})
        self._env = env
        self._agent = agent
        self._expert = expert
        self._talk = Conversation(protocol=protocol, toolbox=env.toolbox, question=question)
        self._steps: list[StepRecord] = []
        self._tokens = [0, 0]

    def branch(self, record: EpisodeRecord, place: int, other: Alternate) -> EpisodeRecord:
        """Do the steps before a place again, then the other action, and go on."""
        said = [message for message in record.messages if message["role"] == "assistant"]
        before = [
            (Turn(action=step.action, message=message), step.actor)
            for step, message in zip(record.steps[:place], said, strict=False)
        ]
        for turn, actor in (*before, (Turn(action=other.action, message=other.message), other.actor)):
            ended = self._do(turn, actor, None)
            if ended is not None:
                return ended.model_copy(update={"branch_at": place})
        return self.run().model_copy(update={"branch_at": place})

    def run(self) -> EpisodeRecord:
        while True:
            try:
                turn, actor, other = self._next()
            except ContextOutgrownError:
                return self._record({"end": End.CONTEXT_LENGTH, "success": False}, terminated=False)
            except UsedUpError as error:
                return self._record({"end": error.end, "success": False}, terminated=False)
            except ModelFailedError as error:
                return self._record({"end": End.MODEL_FAILED, "success": False}, terminated=False, error=str(error))
            ended = self._do(turn, actor, other)
            if ended is not None:
                return ended

    def _do(self, turn: Turn, actor: Actor, other: Alternate | None) -> EpisodeRecord | None:
        """Do a step; return the episode if that ended it."""
        observation, reward, terminated, truncated, info = self._env.step(turn.action)
        self._talk.add(turn, None if terminated or truncated else observation)
        self._steps.append(
            StepRecord(
                actor=actor,
                action=turn.action,
                category=info["category"],
                reward=reward,
                observation=observation,
                alternate=other,
            )
        )
        if terminated or truncated:
            return self._record(info, terminated=terminated)
        if self._is_hopeless():
            return self._record({"end": End.HOPELESS, "success": False}, terminated=False)
        return None

    def _is_hopeless(self) -> bool:
        if self._overseer is None:
            return False
        try:
            return self._overseer.hopeless(self._talk.question, [(one.action, one.observation) for one in self._steps])
        except (JudgeUnclearError, JudgeFailedError):
            # What it does not say ends nothing: the horizon does, at last.
            self._silent += 1
            return False

    def _next(self) -> tuple[Turn, Actor, Alternate | None]:
        """Return what is done, by whom, and what the other one would have done."""
        steps = [one.category for one in self._steps]
        kept = self._expert.alternates and self._expert.mode is not ExpertMode.NONE
        truth = self._talk.turn(self._env.next_expected())
        if self._expert.acts(self._env.instance.id, steps):
            said = self._ask() if kept else None
            return truth, Actor.EXPERT, self._alternate(Actor.AGENT, said, truth) if said else None
        turn = self._ask()
        return turn, Actor.AGENT, self._alternate(Actor.EXPERT, truth, turn) if kept else None

    def _ask(self) -> Turn:
        if self._agent is None:
            raise ModelFailedError("there is no agent to ask")
        turn = self._agent.act(self._talk)
        self._tokens = [self._tokens[0] + turn.prompt_tokens, self._tokens[1] + turn.completion_tokens]
        return turn

    def _alternate(self, actor: Actor, turn: Turn, done: Turn) -> Alternate | None:
        if same_action(turn.action, done.action):
            return None
        return Alternate(actor=actor, action=turn.action, category=self._env.foresee(turn.action), message=turn.message)

    def _record(self, info: dict[str, Any], *, terminated: bool, error: str | None = None) -> EpisodeRecord:
        instance = self._env.instance
        end: End = info["end"]
        return EpisodeRecord(
            sample_id=instance.id,
            success=info["success"],
            void=end.void,
            terminated=terminated,
            truncated=not terminated,
            end=end,
            error=error,
            violated=any(one.category is StepCategory.FORBIDDEN for one in self._steps),
            total_time_steps=len(self._steps),
            expert_assistance=Assistance(
                settings=self._expert, tracker=[int(one.actor is Actor.EXPERT) for one in self._steps]
            ),
            tool_availability=instance.tool_availability,
            order=instance.order,
            tags=instance.tags,
            answerable=instance.answerable,
            task=instance.task,
            protocol=self._talk.protocol,
            steps=self._steps,
            overseer_silent=self._silent,
            witness_silent=self._env.witness_silent,
            messages=self._talk.messages,
            tools=self._talk.tools,
            prompt_tokens=self._tokens[0],
            completion_tokens=self._tokens[1],
        )
