"""ModelServer: keep engine pods running, tell each what to hold, report what they hold, move aliases on evidence."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from whetstone_api.aliases import AliasStatus
from whetstone_api.benchmarkrun import BenchmarkRun
from whetstone_api.loratrainingjob import LoRATrainingJob
from whetstone_api.modelserver import AdapterSpec, ModelServer, ModelServerStatus
from whetstone_api.pod_state import DesiredState, PodState
from whetstone_api.vocabulary import AliasMoveReason, Label, Reason

from whetstone_operator.controllers import adapters as adapter_policy
from whetstone_operator.controllers import capacity, engine_pods
from whetstone_operator.controllers.access import Access, apply_access, key_secrets, require_access
from whetstone_operator.controllers.adapters import PodView, ResolvedAdapter
from whetstone_operator.controllers.alias_routes import AliasRoutes, moved_status, route_aliases, wanted_adapters
from whetstone_operator.controllers.aliases import Move, Version, decide_fixed, decide_promotion, gather_evidence
from whetstone_operator.controllers.engine_deployment import apply_deployment
from whetstone_operator.controllers.engine_upgrade import UpgradeWaits, tell_upgrade
from whetstone_operator.controllers.hold import HeldBack, Hold, holds_of, tell_holds
from whetstone_operator.controllers.merged_model import resolve_merged_model
from whetstone_operator.controllers.pod_polls import next_look
from whetstone_operator.controllers.references import require_authorities
from whetstone_operator.controllers.selected_adapters import select_adapters
from whetstone_operator.controllers.serving import forget_metrics, report_metrics, settle_readiness
from whetstone_operator.controllers.source_pins import Pin, Pins, pin_model
from whetstone_operator.kinds import BENCHMARK_RUN, CLAIM, CONFIG_MAP, DEPLOYMENT, JOB, POD, SECRET, TRAINING_JOB, Key
from whetstone_operator.kube import Object
from whetstone_operator.metrics import ALIAS_MOVES
from whetstone_operator.resources import modelserver as build
from whetstone_operator.resources.access import access_name
from whetstone_operator.resources.engine import precision
from whetstone_operator.resources.source_volumes import model_path
from whetstone_operator.runtime.events import NORMAL
from whetstone_operator.runtime.outcome import Interrupt, Waiting
from whetstone_operator.runtime.queue import Result
from whetstone_operator.runtime.read_ahead import ReadAhead
from whetstone_operator.runtime.reconcile import Context, Work, load, run_steps
from whetstone_operator.runtime.references import ANY
from whetstone_operator.runtime.unchanged import stamp

CLAIM_POLL_SECONDS = 5.0


class ServerReconcile:
    """One reconcile of one ModelServer: the steps in their order, and what they learn on the way."""

    def __init__(self, work: Work[ModelServer]) -> None:
        self._kube = ReadAhead(work.context.kube)
        self.server = work.resource
        self.observed = ModelServerStatus.model_validate(work.status)
        self.recorded = adapter_policy.by_name(self.observed.adapters)
        self.pins = Pins(self.observed.sources)
        self.access = Access(token="", problem=None)
        self.adapters: list[ResolvedAdapter] = []
        self.refused: list[ResolvedAdapter] = []
        self.jobs: dict[str, LoRATrainingJob] = {}
        self.ranks: dict[str, int] = {}
        self.sized = work.resource
        self.form: str | None = None
        self.desired: DesiredState | None = None
        self.held: DesiredState | None = None
        self.config_map: Object | None = None
        self.pods: list[dict[str, Any]] = []
        self.views: list[PodView] = []
        self.deployment: dict[str, Any] = {}
        self.refusal: Interrupt | None = None
        self.holds: list[Hold] = []

    async def find_model(self, work: Work[ModelServer]) -> None:
        """Find the merged model of a training job; from here on the spec has it as its source."""
        self.server = await resolve_merged_model(work, self.server)

    async def read_ahead(self, work: Work[ModelServer]) -> None:
        """Read all that the steps will ask for at once: one after another, they would take most of a reconcile."""
        jobs = [spec.training_job_ref.name for spec in self.server.spec.adapters or [] if spec.training_job_ref]
        await self._kube.fetch(
            work.namespace,
            (
                *((CLAIM, claim) for claim in build.claims(self.server)),
                *((TRAINING_JOB, job) for job in jobs),
                *((SECRET, secret) for secret in key_secrets(self.server)),
            ),
            own=(
                (SECRET, access_name(work.name)),
                (CONFIG_MAP, build.desired_name(self.server)),
                *((DEPLOYMENT, name) for name in self._remembered()),
            ),
            pods=build.pod_selector(self.server),
            new=work.new,
        )

    async def find_holds(self, work: Work[ModelServer]) -> None:
        """Find the benchmarks that measure the server now."""
        if work.new:
            return
        jobs = await self._kube.list(JOB, work.namespace, {str(Label.HOLDS): work.name})
        self.holds = holds_of(jobs, now=work.now)
        for hold in self.holds:
            work.look_again((hold.until - work.now).total_seconds() + 1)

    async def check_mounts(self, work: Work[ModelServer]) -> None:
        """Wait for what the pod mounts and others make: a pod without it would hang without a word."""
        await require_authorities(work)
        for claim, where in build.claims(self.server).items():
            if await self._kube.get(CLAIM, work.namespace, claim) is None:
                message = f"{where}: claim {claim} does not exist in namespace {work.namespace}; create it"
                raise Waiting(Reason.CLAIM_NOT_FOUND, message, CLAIM_POLL_SECONDS)

    async def settle_access(self, work: Work[ModelServer]) -> None:
        """Have a token for the pods, and tell them who else may call."""
        self.access = await apply_access(work, self._kube)

    async def resolve_model(self, work: Work[ModelServer]) -> None:
        """Pin the base model; from here on the spec names it by its commit."""
        self.server = await pin_model(work, self.server, self.pins)

    async def resolve_adapters(self, work: Work[ModelServer]) -> None:
        """Find the version of each adapter. One that has none yet never holds the server back."""
        selected = await self._selected_jobs(work)
        selection = select_adapters(self.server, list(selected.values()))
        self.refused, self.jobs = selection.refused, dict(selected)
        for spec in [*(self.server.spec.adapters or []), *selection.adapters]:
            job = selected.get(spec.training_job_ref.name) if spec.training_job_ref else None
            if spec.training_job_ref is not None and job is None:
                work.depends_on(TRAINING_JOB.plural, spec.training_job_ref.name)
                obj = await self._kube.get(TRAINING_JOB, work.namespace, spec.training_job_ref.name)
                job = LoRATrainingJob.model_validate({"status": {}, **obj}) if obj else None
                self.jobs |= {spec.training_job_ref.name: job} if job else {}
            recorded = self.recorded.get(spec.name)
            pin = await self._pin(work, spec)
            self.adapters.append(
                adapter_policy.resolve_adapter(spec, server=self.server, job=job, recorded=recorded, pin=pin)
            )
        _put(work.status, "sources", [entry.to_wire() for entry in self.pins.entries])

    async def _selected_jobs(self, work: Work[ModelServer]) -> dict[str, LoRATrainingJob]:
        selector = self.server.spec.adapter_selector
        if selector is None:
            return {}
        work.depends_on(TRAINING_JOB.plural, ANY)
        objects = await self._kube.list(TRAINING_JOB, work.namespace, selector.match_labels)
        jobs = [LoRATrainingJob.model_validate({"status": {}, **obj}) for obj in objects]
        return {job.metadata.name: job for job in jobs if job.metadata.deletion_timestamp is None}

    async def publish_desired(self, work: Work[ModelServer]) -> None:
        """Write what pods should hold, with the aliases as they are recorded."""
        self.config_map = await self._kube.get(CONFIG_MAP, work.namespace, build.desired_name(self.server))
        self.held = build.read_desired(self.config_map, owner=self.server.metadata.uid)
        await self._write_desired(work, self._routes(self.observed.aliases or []))

    async def apply_children(self, work: Work[ModelServer]) -> None:
        """Apply Service, disruption budget and Deployment."""
        *_, (self.deployment, self.refusal) = await asyncio.gather(
            self._kube.apply(build.build_service(self.server), look=not work.new),
            self._kube.apply(build.build_disruption_budget(self.server), look=not work.new),
            apply_deployment(work, self.sized, form=self.form, held=bool(self.holds)),
        )
        waiting = isinstance(self.refusal, HeldBack)
        tell_holds(work.conditions, self.holds, waiting=waiting)
        upgrade = self.refusal if isinstance(self.refusal, UpgradeWaits) else None
        tell_upgrade(work.conditions, upgrade)
        self.refusal = None if waiting or upgrade else self.refusal
        work.status["url"] = build.server_url(self.server)
        work.status["selector"] = ",".join(f"{k}={v}" for k, v in sorted(build.pod_selector(self.server).items()))
        status = self.deployment.get("status") or {}
        work.status["replicas"] = status.get("replicas", 0)
        work.status["readyReplicas"] = status.get("readyReplicas", 0)

    async def observe_pods(self, work: Work[ModelServer]) -> None:
        """Tell every pod what to hold, all at once, and take what each answers."""
        pods = await self._kube.list(POD, work.namespace, build.pod_selector(self.server))
        self.pods = [pod for pod in pods if engine_pods.is_live(pod)]
        await self._ask_pods(work)
        ahead = max((view.state.revision for view in self.views if view.state), default=0)
        if self.desired is not None and ahead > self.desired.revision:
            # The ConfigMap was made anew after the clock had been set back: pods would not take what it says.
            if (pause := work.context.leaps.take(work.key)) > 0:
                work.look_again(pause)
            else:
                await self._store_desired(self.desired, revision=ahead + 1)
                await self._ask_pods(work)
        self.ranks = capacity.known_ranks(self.views, self.recorded.values())

    async def size_engine(self, work: Work[ModelServer]) -> None:
        """Reserve what the adapters need, where the spec leaves it to us."""
        demands = capacity.list_demands(
            self.server.spec.adapters or [],
            self.jobs,
            resolved=self.adapters,
            held=self.desired.adapters if self.desired else [],
            ranks=self.ranks,
        )
        stored = [await self._kube.get(DEPLOYMENT, work.namespace, name) for name in self._remembered()]
        deployment = stored[0] if stored else None
        self.sized, self.form = capacity.size_engine(
            work, self.server, demands=demands, deployment=deployment, pods=self.views
        )

    def _remembered(self) -> list[str]:
        """Return the name of the Deployment where it tells what engines have reserved."""
        return [build.deployment_name(self.server)] if self.server.spec.adapter_capacity.automatic else []

    async def report_adapters(self, work: Work[ModelServer]) -> None:
        """Write what the pods say about adapters into status and conditions."""
        statuses = [
            adapter_policy.adapter_status(
                adapter, pods=self.views, recorded=self.recorded.get(adapter.name), now=work.now
            ).model_copy(update={"rank": self.ranks.get(adapter.digest or "")})
            for adapter in self.adapters
        ]
        _put(work.status, "adapters", [status.to_wire() for status in statuses])
        failures = adapter_policy.adapter_failures(self.adapters, self.views)
        _put(work.status, "failures", [failure.to_wire() for failure in failures])
        for summary in adapter_policy.summarize([*self.adapters, *self.refused], self.views):
            work.conditions.set(summary.condition, summary.status, reason=summary.reason, message=summary.message)
        report_metrics(work, adapters=self.adapters, statuses=statuses, recorded=self.recorded)

    async def move_aliases(self, work: Work[ModelServer]) -> None:
        """Decide what each alias serves; a move goes to all pods together."""
        runs = await self._runs(work)
        current = {alias.name: alias for alias in self.observed.aliases or []}
        entries: list[AliasStatus] = []
        moved = False
        for spec in self.server.spec.aliases or []:
            before = current.get(spec.name)
            move = self._decide(spec.name, before, runs)
            if move is not None:
                moved = True
                entries.append(self._moved(work, spec.name, before=before, move=move))
            elif before is not None:
                entries.append(before)
        _put(work.status, "aliases", [entry.to_wire() for entry in entries])
        if moved or set(current) - {entry.name for entry in entries}:
            await self._write_desired(work, self._routes(entries))
            await self._ask_pods(work)

    async def judge_readiness(self, work: Work[ModelServer]) -> None:
        """Settle the server's own state last, when everything else is told."""
        revision = self.desired.revision if self.desired else 0
        if (pause := next_look(self.pods, self.views, revision=revision, now=work.now)) is not None:
            work.look_again(pause)
        require_access(self.access.problem)
        if self.refusal is not None:
            raise self.refusal
        await settle_readiness(work, deployment=self.deployment, pods=self.pods, views=self.views)

    async def _pin(self, work: Work[ModelServer], spec: AdapterSpec) -> Pin | None:
        if spec.source is None:
            return None
        pin = await self.pins.resolve(work, spec.source, field=f"spec.adapters[{spec.name}].source")
        if pin.after_seconds is not None:
            work.look_again(pin.after_seconds)
        return pin

    def _decide(self, name: str, before: AliasStatus | None, runs: Sequence[BenchmarkRun]) -> Move | None:
        spec = next(alias for alias in self.server.spec.aliases or [] if alias.name == name)
        base = self.server.spec.model.served_name
        versions = self._versions()
        if spec.targets:
            return decide_fixed(current=before, targets=spec.targets, base=base, versions=versions)
        if spec.promotion is None:
            return None
        return decide_promotion(
            current=before,
            base=base,
            evidence=gather_evidence(runs, server=self.server.metadata.name, promotion=spec.promotion),
            versions={item.digest: item for item in reversed(versions)},
        )

    def _versions(self) -> list[Version]:
        """Return the versions that pods are told to hold; the current one of a name comes first."""
        found: list[Version] = []
        for item in self.desired.adapters if self.desired else []:
            version = ResolvedAdapter(name=item.name, required=item.required, source=item.source, digest=item.digest)
            effective = adapter_policy.effective_everywhere(version, self.views)
            found.append(
                Version(adapter=item.name, served_name=item.served_name, digest=item.digest, effective=effective)
            )
        return found

    def _moved(self, work: Work[ModelServer], name: str, *, before: AliasStatus | None, move: Move) -> AliasStatus:
        if before is not None or move.cause is AliasMoveReason.PROMOTION:
            source = before.served_name if before else self.server.spec.model.served_name
            why = f" on the evidence of BenchmarkRun {move.run}" if move.run else ""
            message = f"alias {name} moved from {source} to {move.describe()}{why} ({move.cause})"
            work.tell(kind=NORMAL, reason=Reason.ALIAS_MOVED, message=message)
            ALIAS_MOVES.labels(cause=move.cause).inc()
        return moved_status(name, before=before, move=move, now=work.now)

    def _routes(self, aliases: Sequence[AliasStatus]) -> AliasRoutes:
        return route_aliases(aliases, names={alias.name for alias in self.server.spec.aliases or []})

    async def _write_desired(self, work: Work[ModelServer], routes: AliasRoutes) -> None:
        """Write the desired state if its content changed; only then its revision rises."""
        spec = self.server.spec
        wanted = DesiredState(
            server=self.server.metadata.name,
            revision=self.held.revision if self.held else 0,
            base_name=spec.model.served_name,
            model_path=model_path(self.server),
            max_rank=capacity.highest_rank(spec.adapter_capacity),
            dtype=precision(spec.engine),
            adapters=wanted_adapters(
                self.adapters,
                held=self.held.adapters if self.held else [],
                routes=routes,
                measured={hold.served_name for hold in self.holds if hold.served_name},
            ),
            aliases=routes.single,
            splits=routes.splits,
            sampling=spec.model.default_sampling.to_request() if spec.model.default_sampling else {},
        )
        changed = wanted != self.held
        if changed:
            # Seconds of the clock, so that a ConfigMap made anew still counts as newer than what pods hold.
            await self._store_desired(wanted, revision=max(wanted.revision + 1, int(work.now.timestamp())))
        else:
            self.held = self.desired = wanted

    async def _store_desired(self, state: DesiredState, *, revision: int) -> None:
        self.held = self.desired = state.model_copy(update={"revision": revision})
        wanted = build.build_desired(self.server, self.desired)
        # An apply would merge it into what somebody else keeps under its name.
        stored = self.config_map or await self._kube.create(stamp(wanted))
        self.config_map = await self._kube.apply(wanted, stored=stored)

    async def _ask_pods(self, work: Work[ModelServer]) -> None:
        self.views = list(await asyncio.gather(*(self._ask(work, pod) for pod in self.pods)))

    async def _ask(self, work: Work[ModelServer], pod: Mapping[str, Any]) -> PodView:
        address = (pod.get("status") or {}).get("podIP")
        state: PodState | None = None
        if address and self.desired is not None:
            state = await work.context.sidecars.put_desired(
                address=str(address), token=self.access.token, desired=self.desired
            )
        return PodView(name=str(pod["metadata"]["name"]), ready=engine_pods.is_ready(pod), state=state)

    async def _runs(self, work: Work[ModelServer]) -> list[BenchmarkRun]:
        if not any(alias.promotion for alias in self.server.spec.aliases or []):
            return []
        work.depends_on(BENCHMARK_RUN.plural, ANY)
        objects = await self._kube.list(BENCHMARK_RUN, work.namespace)
        return [BenchmarkRun.model_validate({"status": {}, **obj}) for obj in objects]


async def reconcile(context: Context, key: Key) -> Result:
    """Bring one ModelServer nearer to its spec."""
    work = await load(context, key, ModelServer)
    if work is None:
        forget_metrics(key)
        context.upgrades.leave(key)
        context.leaps.forget(key)
        return Result()
    scene = ServerReconcile(work)
    return await run_steps(
        work,
        (
            scene.find_model,
            scene.read_ahead,
            scene.find_holds,
            scene.check_mounts,
            scene.settle_access,
            scene.resolve_model,
            scene.resolve_adapters,
            scene.publish_desired,
            # Before the children are applied: running pods should not wait for it.
            scene.observe_pods,
            scene.size_engine,
            scene.apply_children,
            scene.report_adapters,
            scene.move_aliases,
            scene.judge_readiness,
        ),
    )


def _put(status: dict[str, Any], name: str, value: list[Any]) -> None:
    """Set a list in a status; an empty one is left out."""
    if value:
        status[name] = value
    else:
        status.pop(name, None)
