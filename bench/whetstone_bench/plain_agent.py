"""The agent of `harbor_alone`: asks the model, runs its command, asks again. Harbor's interface and nothing of ours."""

import re
from typing import Any

import aiohttp
from harbor.agents.base import BaseAgent
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext

_COMMAND = re.compile(r"```bash\n(.*?)\n```", re.DOTALL)


class PlainAgent(BaseAgent):
    """Works until the model gives no command."""

    def __init__(self, *args: Any, server_url: str, served_name: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._url, self._model = f"{server_url}/chat/completions", served_name

    @staticmethod
    def name() -> str:
        """Return the agent's name in Harbor's results."""
        return "plain"

    def version(self) -> str:
        """Return a version."""
        return "1"

    async def setup(self, environment: BaseEnvironment) -> None:
        """Nothing is installed in the sandbox."""

    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        """Work on a task."""
        context.metadata = {"agent": "plain"}
        messages = [{"role": "user", "content": instruction}]
        async with aiohttp.ClientSession() as session:
            while True:
                async with session.post(self._url, json={"model": self._model, "messages": messages}) as answer:
                    text = (await answer.json())["choices"][0]["message"]["content"]
                found = _COMMAND.search(text)
                if found is None:
                    return
                done = await environment.exec(command=found[1], timeout_sec=60)
                seen = {"role": "user", "content": f"Exit code: {done.return_code}"}
                messages += [{"role": "assistant", "content": text}, seen]
