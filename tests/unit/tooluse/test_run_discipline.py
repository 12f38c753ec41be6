"""A `toolUse` run tells how disciplined its agent worked, as runs of Harbor tasks do."""

from unit.tooluse import test_benchmark as runs
from unit.tooluse.test_benchmark import ASK, RIGHT, Configure, StartModel, artifact_of, run, saying

configure, model, quick = runs.configure, runs.model, runs.quick


async def test_the_rules_name_the_tools_of_the_environment(configure: Configure, model: StartModel) -> None:
    _, url = await model(saying(ASK, RIGHT))
    config = configure(serverUrl=url, discipline={"done": ["FINAL"]})
    told = (await run(config)).result["results"]["discipline"]
    assert (told["trajectories"], told["unread"]) == (4, 0)
    assert float(told["tokensPerTask"]) > 0
    assert artifact_of(config).results.discipline is not None
