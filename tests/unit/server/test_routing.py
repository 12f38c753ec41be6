"""Routes: a name moves only to a version that works in this pod."""

from whetstone_api.pod_state import AliasShare, DesiredAdapter, DesiredState, GuardRoutes
from whetstone_server.routing import plan_routes


def shares(**weights: int) -> list[AliasShare]:
    names = {name.replace("__", "--"): weight for name, weight in weights.items()}
    return [AliasShare(adapter=name.split("--")[0], served_name=name, weight=one) for name, one in names.items()]


def desired(
    *served: str, aliases: dict[str, str] | None = None, splits: dict[str, list[AliasShare]] | None = None
) -> DesiredState:
    adapters = [
        DesiredAdapter(name=name.split("--")[0], served_name=name, digest="sha256:x", source="", path="/x")
        for name in served
    ]
    return DesiredState(
        server="s",
        revision=1,
        base_name="base",
        model_path="/m",
        max_rank=16,
        dtype="float32",
        adapters=adapters,
        aliases=aliases or {},
        splits=splits or {},
    )


def plan(
    wanted: DesiredState,
    *,
    before: GuardRoutes | None = None,
    listed: str = "",
    effective: str = "",
    rejected: str = "",
) -> GuardRoutes:
    return plan_routes(
        wanted,
        before=before or GuardRoutes(open=True, base="base"),
        listed=listed.split(),
        effective=effective.split(),
        rejected=rejected.split(),
        opened=True,
    )


def test_bare_name_serves_the_first_of_two_versions() -> None:
    routes = plan(desired("a--2", "a--1", aliases={"prod": "a--1"}), listed="a--1 a--2", effective="a--1 a--2")
    assert routes.adapters == {"a": "a--2"}
    assert routes.aliases == {"prod": "a--1"}
    assert routes.versions == ["a--2", "a--1"]


def test_new_pod_answers_no_alias_before_its_version() -> None:
    routes = plan(desired("a--1", aliases={"prod": "a--1"}), listed="a--1")
    assert routes.aliases == {}
    assert set(routes.pending) == {"a", "a--1", "prod"}


def test_alias_stays_on_the_base_until_the_version_works() -> None:
    before = GuardRoutes(open=True, base="base", aliases={"prod": "base"})
    assert plan(desired("a--1", aliases={"prod": "a--1"}), before=before).aliases == {"prod": "base"}


def test_version_found_divergent_leaves_every_route() -> None:
    before = GuardRoutes(open=True, base="base", adapters={"a": "a--1"}, aliases={"p": "a--1"}, versions=["a--1"])
    routes = plan(desired("a--1", aliases={"p": "a--1"}), before=before, listed="a--1", rejected="a--1")
    assert (routes.adapters, routes.aliases, routes.versions) == ({}, {}, [])


def test_version_the_engine_lost_leaves_every_route() -> None:
    before = GuardRoutes(open=True, base="base", adapters={"a": "a--1"}, versions=["a--1"])
    assert plan(desired("a--1"), before=before).adapters == {}


def test_removed_names_leave_at_once() -> None:
    before = GuardRoutes(open=True, base="base", adapters={"a": "a--1"}, aliases={"p": "base"}, versions=["a--1"])
    routes = plan(desired(), before=before, listed="a--1")
    assert (routes.adapters, routes.aliases, routes.versions, routes.pending) == ({}, {}, [], [])


def test_alias_with_several_targets_moves_when_all_of_them_work() -> None:
    split = shares(a__1=70, base=30)
    wanted = desired("a--1", splits={"p": split})
    assert plan(wanted, effective="a--1").splits == {"p": split}
    before = GuardRoutes(open=True, base="base", aliases={"p": "base"})
    routes = plan(desired("a--1", "b--1", splits={"p": shares(a__1=1, b__1=1)}), before=before, effective="a--1")
    assert (routes.aliases, routes.splits) == ({"p": "base"}, {})


def test_old_targets_answer_until_the_new_ones_work() -> None:
    old = shares(a__1=1, base=1)
    before = GuardRoutes(open=True, base="base", splits={"p": old}, versions=["a--1"])
    routes = plan(desired("a--2", splits={"p": shares(a__2=1, base=1)}), before=before, listed="a--1")
    assert (routes.splits, routes.versions) == ({"p": old}, ["a--1"])


def test_replica_that_lost_one_target_answers_for_the_others() -> None:
    split = shares(a__1=1, b__1=1, c__1=0)
    before = GuardRoutes(open=True, base="base", splits={"p": split}, versions=["a--1", "b--1"])
    routes = plan(desired("a--1", "b--1", splits={"p": split}), before=before, listed="a--1", effective="a--1")
    assert routes.splits == {"p": split}
    assert routes.versions == ["a--1"]
    assert plan(desired("a--1", "b--1", splits={"p": split}), before=before).pending[-3:] == ["p", "a--1", "b--1"]
