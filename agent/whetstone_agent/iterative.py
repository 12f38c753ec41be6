"""The iterative bash agent: the model proposes a command, the sandbox runs it, the output goes back."""

import json
import shlex
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from harbor.agents.base import BaseAgent
from harbor.agents.options import AgentOptions
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext
from openai import APIConnectionError, APIStatusError, AsyncOpenAI
from pydantic import Field
from whetstone_api.vocabulary import ADAPTER_HEADER
from whetstone_artifacts.replacing import replacing

from whetstone_agent.agents.errors import ModelRefusedError, ModelUnavailableError, TargetChangedError
from whetstone_agent.agents.usage import outgrown
from whetstone_agent.api_key import NO_KEY
from whetstone_agent.conversation import OUTPUT_LIMIT, SYSTEM_PROMPT, Action, observation, parse_reply, recent

COMMAND_SECONDS: Final = 120
"""Longest time of one command; it ends with exit code 124 then."""


class IterativeBashOptions(AgentOptions):
    """Parameters, checked before the first trial starts."""

    server_url: str
    """Base URL of the OpenAI-compatible API, ending in `/v1`."""
    served_name: str
    """Version to ask for; the response header must name it."""
    system_prompt: str = SYSTEM_PROMPT
    max_turns: int = Field(default=10, ge=1)
    max_tokens: int = Field(default=1024, ge=1)
    history_turns: int | None = Field(default=None, ge=1)
    observation_characters: int = Field(default=OUTPUT_LIMIT, ge=1)
    command_seconds: int = Field(default=COMMAND_SECONDS, ge=1)
    repeated_commands: int | None = Field(default=None, ge=2)
    temperature: float = Field(default=0.0, ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    seed: int = Field(default=0, ge=0)


@dataclass(frozen=True, kw_only=True)
class Reply:
    """A model's answer."""

    text: str
    complete: bool
    """The model ended it itself; false when the token limit cut it off."""
    prompt_tokens: int
    completion_tokens: int


@dataclass(kw_only=True)
class Episode:
    """What happened so far; written to disk after every turn, so that a timeout loses none of it."""

    messages: list[dict[str, str]]
    turns: list[tuple[Reply, Action, str | None]] = field(default_factory=list)
    """Reply, what it asked for, and the observation that followed."""
    end: str = "Running"
    """Finished, MaxTurns, Repeated, ContextLength; Running when the episode was cut off from outside."""


class IterativeBashAgent(BaseAgent):
    """Harbor agent that runs in the runner's process; the sandbox only gets commands."""

    options_model: ClassVar[type[AgentOptions]] = IterativeBashOptions

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        assert isinstance(self.options, IterativeBashOptions)
        self._settings: IterativeBashOptions = self.options
        self._client: AsyncOpenAI | None = None

    @staticmethod
    def name() -> str:
        """Return the agent's name in Harbor's results."""
        return "whetstone"

    def version(self) -> str:
        """Return the version of the conversation's protocol."""
        return "1"

    async def setup(self, environment: BaseEnvironment) -> None:
        """Nothing is installed in the sandbox."""

    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        """Work on a task.

        Args:
            instruction: What to do; the first user message.
            environment: Where commands run.
            context: Gets the token counts, turn by turn.

        Raises:
            ModelUnavailableError, ModelRefusedError: The trial is void.
            TargetChangedError: The run is void.
        """
        prompt = self._settings.system_prompt
        messages = [{"role": "system", "content": prompt}] if prompt else []
        episode = Episode(messages=[*messages, {"role": "user", "content": instruction.rstrip()}])
        async with AsyncOpenAI(
            base_url=self._settings.server_url,
            api_key=NO_KEY,
            # The door tries again, and keeps the time.
            max_retries=0,
            timeout=None,
        ) as client:
            self._client = client
            try:
                await self._converse(episode, environment, context)
            finally:
                self._write(episode, context)

    async def _converse(self, episode: Episode, environment: BaseEnvironment, context: AgentContext) -> None:
        for _ in range(self._settings.max_turns):
            reply = await self._ask(recent(episode.messages, self._settings.history_turns))
            if reply is None:
                episode.end = "ContextLength"
                return
            episode.messages.append({"role": "assistant", "content": reply.text})
            context.n_input_tokens = (context.n_input_tokens or 0) + reply.prompt_tokens
            context.n_output_tokens = (context.n_output_tokens or 0) + reply.completion_tokens
            action = parse_reply(reply.text, complete=reply.complete)
            seen = None if action.command is None else await self._execute(environment, action.command)
            episode.turns.append((reply, action, seen))
            if action.finished or seen is None:
                episode.end = "Finished"
                return
            if _repeats(episode, self._settings.repeated_commands):
                episode.end = "Repeated"
                return
            episode.messages.append({"role": "user", "content": seen})
            self._write(episode, context)
        episode.end = "MaxTurns"

    async def _execute(self, environment: BaseEnvironment, command: str) -> str:
        """Run a command of the model and return the observation."""
        settings = self._settings
        result = await environment.exec(
            command=f"bash -c {shlex.quote(command)} 2>&1 </dev/null", timeout_sec=settings.command_seconds
        )
        output = (result.stdout or "") + (result.stderr or "")
        return observation(result.return_code, output, settings.observation_characters)

    async def _ask(self, messages: list[dict[str, str]]) -> Reply | None:
        """Return the model's answer, or None when the conversation no longer fits its context."""
        assert self._client is not None
        settings = self._settings
        try:
            raw = await self._client.chat.completions.with_raw_response.create(
                model=settings.served_name,
                messages=messages,  # type: ignore[arg-type]
                max_tokens=settings.max_tokens,
                temperature=settings.temperature,
                # Sent even where it changes nothing: a server's default sampling must not enter a benchmark.
                top_p=settings.top_p,
                seed=settings.seed,
            )
        except APIConnectionError as error:
            raise ModelUnavailableError(f"{settings.server_url} does not answer: {error}") from error
        except APIStatusError as error:
            if outgrown(error.status_code, str(error.message)):
                return None
            raise _refusal(error, settings.served_name) from error
        answered = raw.headers.get(ADAPTER_HEADER)
        if answered != settings.served_name:
            raise TargetChangedError(f"asked for {settings.served_name!r}, {answered!r} answered")
        completion = raw.parse()
        choice, usage = completion.choices[0], completion.usage
        return Reply(
            text=choice.message.content or "",
            complete=choice.finish_reason != "length",
            prompt_tokens=usage.prompt_tokens if usage else 0,
            completion_tokens=usage.completion_tokens if usage else 0,
        )

    def _write(self, episode: Episode, context: AgentContext) -> None:
        context.metadata = {"turns": len(episode.turns), "end": episode.end}
        self.logs_dir.mkdir(parents=True, exist_ok=True)
        with replacing(self.logs_dir / "trajectory.json", durable=False) as temporary:
            temporary.write_text(json.dumps(self._trajectory(episode), indent=1))
        row = {"messages": episode.messages, "end": episode.end}
        with replacing(self.logs_dir / "messages.jsonl", durable=False) as temporary:
            temporary.write_text(json.dumps(row, ensure_ascii=False) + "\n")

    def _trajectory(self, episode: Episode) -> dict[str, Any]:
        """Return the episode in Harbor's Agent Trajectory Interchange Format, version 1.8."""
        steps: list[dict[str, Any]] = []
        for message in episode.messages:
            if message["role"] == "assistant":
                break
            steps.append({"step_id": len(steps) + 1, "source": message["role"], "message": message["content"]})
        for reply, action, seen in episode.turns:
            step: dict[str, Any] = {
                "step_id": len(steps) + 1,
                "source": "agent",
                "message": reply.text,
                "metrics": {"prompt_tokens": reply.prompt_tokens, "completion_tokens": reply.completion_tokens},
                "llm_call_count": 1,
            }
            if action.command is not None:
                call = f"call-{len(steps) + 1}"
                arguments = {"command": action.command}
                step["tool_calls"] = [{"tool_call_id": call, "function_name": "bash", "arguments": arguments}]
                step["observation"] = {"results": [{"source_call_id": call, "content": seen}]}
            steps.append(step)
        return {
            "schema_version": "ATIF-v1.8",
            "session_id": self.session_id,
            "agent": {"name": self.name(), "version": self.version(), "model_name": self._settings.served_name},
            "steps": steps,
            "final_metrics": {
                "total_prompt_tokens": sum(reply.prompt_tokens for reply, _, _ in episode.turns),
                "total_completion_tokens": sum(reply.completion_tokens for reply, _, _ in episode.turns),
                "total_steps": len(steps),
            },
            "extra": {"end": episode.end},
        }


def _repeats(episode: Episode, limit: int | None) -> bool:
    """Say whether the latest turns all had the same command."""
    if limit is None or len(episode.turns) < limit:
        return False
    return len({action.command for _, action, _ in episode.turns[-limit:]}) == 1


def _refusal(error: APIStatusError, served_name: str) -> Exception:
    """Return what any other error answer means."""
    text = str(error.message)
    if error.status_code == 404:
        return TargetChangedError(f"{served_name!r} is no longer served: {text}")
    if error.status_code >= 500 or error.status_code in (408, 409, 429):
        return ModelUnavailableError(f"the model server answers {error.status_code}: {text}")
    return ModelRefusedError(f"the model server refuses a request ({error.status_code}): {text}")
