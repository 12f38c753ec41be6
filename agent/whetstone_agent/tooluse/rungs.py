"""On which rung of the ladder of tool use an instance stands: what its calls ask of a model. Pure."""

from collections.abc import Iterator

from whetstone_artifacts.data.ladder import Rung

from whetstone_agent.tooluse.instances import Instance

_SEVERAL = (Rung.PARALLEL, Rung.SEQUENTIAL, Rung.NESTED)


def fitting_rungs(instance: Instance) -> tuple[Rung, ...]:
    """Return the rungs that an instance may be tagged with.

    A question whose answer takes a tool that is missing or forbidden takes no call: the right thing is to say so. Of
    several calls only who knows where their arguments come from can tell which rung they are.

    Args:
        instance: The instance.
    """
    calls = sum(len(turn.trajectory) for turn in instance.turns if turn.answerable)
    if calls == 0:
        return (Rung.NONE,)
    if instance.follow_ups:
        return (Rung.MULTI_TURN,)
    return (Rung.SINGLE,) if calls == 1 else _SEVERAL


def rung_problems(instance: Instance) -> Iterator[str]:
    """Say what is wrong with the rungs that an instance is tagged with."""
    tagged = [Rung(tag) for tag in instance.tags if tag in set(Rung)]
    if len(tagged) > 1:
        yield f"tags: {' and '.join(tagged)} are rungs of tool use: leave one"
    fitting = fitting_rungs(instance)
    for rung in tagged:
        if rung not in fitting:
            yield f"tags: {rung} does not fit the calls that the answer takes: use {' or '.join(fitting)}"


def tagged(instance: Instance, *, several: Rung) -> Instance:
    """Return an instance with the tag of its rung.

    Args:
        instance: An instance without one.
        several: The rung where it takes several calls.
    """
    fitting = fitting_rungs(instance)
    rung = fitting[0] if len(fitting) == 1 else several
    return instance.model_copy(update={"tags": [*instance.tags, rung.value]})
