"""When the expert acts."""

import pytest
from pydantic import ValidationError
from whetstone_agent.tooluse.expert import ExpertMode, ExpertSettings
from whetstone_agent.tooluse.outcomes import StepCategory

GOOD, USELESS, WRONG = StepCategory.EXPECTED, StepCategory.UNHELPFUL, StepCategory.MALFORMED


@pytest.mark.parametrize(("mode", "acts"), [(ExpertMode.NONE, False), (ExpertMode.GROUND_TRUTH, True)])
def test_none_never_acts_and_ground_truth_always(mode: ExpertMode, acts: bool) -> None:
    expert = ExpertSettings(mode=mode)
    assert [expert.acts("i1", steps) for steps in ([], [GOOD], [WRONG, WRONG, WRONG])] == [acts] * 3


def test_random_acts_with_its_probability_and_alike_in_every_run() -> None:
    def tosses(**fields: float) -> list[bool]:
        expert = ExpertSettings.model_validate({"mode": "Random", **fields})
        return [expert.acts(f"i{number}", [GOOD] * 2) for number in range(400)]

    assert tosses(epsilon=0.25) == tosses(epsilon=0.25)
    assert 60 < sum(tosses(epsilon=0.25)) < 140
    assert (sum(tosses(epsilon=0)), sum(tosses(epsilon=1))) == (0, 400)
    assert tosses(epsilon=0.25, seed=1) != tosses(epsilon=0.25)


def test_random_tosses_for_each_step() -> None:
    expert = ExpertSettings(mode=ExpertMode.RANDOM)
    assert len({expert.acts("i1", [GOOD] * number) for number in range(20)}) == 2


@pytest.mark.parametrize(
    ("initial", "recent", "steps", "acts"),
    [
        (2, 2, [], False),
        (2, 2, [WRONG], False),
        (2, 2, [WRONG, WRONG], True),
        (3, 2, [WRONG, WRONG], False),
        (3, 2, [GOOD, WRONG, USELESS], True),
        (2, 2, [WRONG, GOOD], False),
        (2, 2, [WRONG, WRONG, GOOD], False),
        (2, 3, [WRONG, WRONG], False),
        (2, 3, [WRONG, WRONG, USELESS], True),
        (0, 1, [GOOD, WRONG], True),
        (0, 1, [], False),
        (0, 1, [USELESS], True),
        (0, 3, [GOOD, WRONG, WRONG], False),
    ],
)
def test_informed_acts_where_the_latest_steps_got_nowhere(
    initial: int, recent: int, steps: list[StepCategory], acts: bool
) -> None:
    expert = ExpertSettings(mode=ExpertMode.INFORMED, initial_limit=initial, recent_limit=recent)
    assert expert.acts("i1", steps) is acts


@pytest.mark.parametrize("wrong", [{"epsilon": 1.1}, {"epsilon": -0.1}, {"initialLimit": -1}, {"recentLimit": 0}])
def test_settings_out_of_bounds_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        ExpertSettings.model_validate(wrong)
