"""What a person may want to change about the data, in words. Rules of thumb: advice, never a refusal."""

from dataclasses import dataclass

FIRST_EFFECT = 200
"""Rows below which a fine-tuning usually shows nothing."""


@dataclass(frozen=True, kw_only=True)
class Need:
    """Rows that a purpose usually takes.

    Args:
        least: Where it begins to work.
        plenty: Where more rows stop to matter much.
        purpose: What is taught, as a plural noun.
    """

    least: int
    plenty: int
    purpose: str


STYLE = Need(least=100, plenty=500, purpose="a format or a tone")
LABELS = Need(least=500, plenty=1000, purpose="sorting and extracting")
TOOLS = Need(least=500, plenty=1000, purpose="tool calls")
AGENTS = Need(least=1000, plenty=5000, purpose="work in several steps")
KNOWLEDGE = Need(least=2000, plenty=10000, purpose="the knowledge of a field")
AGENT_TURNS = 3
"""Turns of the assistant from which a row counts as work in several steps."""


@dataclass(kw_only=True)
class Nature:
    """What rows look like, counted one by one.

    Args:
        rows: All of them.
        calling: Those in which the assistant calls a tool.
        stepwise: Those in which it speaks at least `AGENT_TURNS` times.
        named: Those that name their task.
    """

    rows: int = 0
    calling: int = 0
    stepwise: int = 0
    named: int = 0

    @property
    def need(self) -> tuple[Need, ...]:
        """What the rows seem to teach: what most of them look like."""
        if 2 * self.stepwise > self.rows:
            return (AGENTS,)
        return (TOOLS,) if 2 * self.calling > self.rows else (STYLE, LABELS, KNOWLEDGE)


def advise(nature: Nature, *, truncated: int) -> list[str]:
    """Return what to consider, the most important first.

    Args:
        nature: The rows that are learned.
        truncated: Rows that lost their end.
    """
    advice = []
    short = [need for need in nature.need if nature.rows < need.least]
    if nature.rows < FIRST_EFFECT:
        needs = ", ".join(f"{need.purpose} {need.least} to {need.plenty}" for need in nature.need)
        advice.append(f"{nature.rows} rows are few: below {FIRST_EFFECT} little is learned; usual are for {needs}")
    elif short:
        needs = ", ".join(f"{need.purpose} ({need.least} to {need.plenty} rows)" for need in short)
        advice.append(f"{nature.rows} rows are few for {needs}")
    if not nature.named:
        advice.append("no row names its `task`: benchmarks cannot tell whether their tasks were learned")
    if truncated:
        advice.append(f"{truncated} rows lost their end: a model that sees no ends learns not to come to one")
    return advice
