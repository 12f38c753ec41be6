"""One operator at work out of several: it holds a Lease, in the way of client-go's leader election.

Every time is of this process's steady clock. What another process wrote is only compared with what it wrote before, so
clocks that differ or jump decide nothing. A process that cannot renew stops working before another one may begin.

The elector of the Kubernetes client is not used: it measures by the wall clock, waits for a request that hangs, ends at
a connection that fails, and does not give the Lease back.

Protocol: https://kubernetes.io/docs/concepts/architecture/leases/
"""

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from whetstone_api.vocabulary import Annotation

from whetstone_operator.kinds import LEASE
from whetstone_operator.kube import Kube, KubeError, Object
from whetstone_operator.metrics import LEADER
from whetstone_operator.runtime.clock import Clock, to_micro_time
from whetstone_operator.runtime.first import first_of

logger = logging.getLogger(__name__)


class LeadershipLostError(Exception):
    """Another operator may work now, so this one must not."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """An operator that may lead.

    Args:
        namespace: Where the Lease is.
        lease: Its name.
        identity: Names this process's pod; a container that is started again in it goes on without a pause.
        url: Base URL at which other operators reach this one; empty where they need not.
    """

    namespace: str
    lease: str
    identity: str
    url: str = ""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """How long a Lease holds, in seconds.

    Args:
        hold: Without a renewal for so long, another operator takes over.
        renew: Without a renewal for so long, the leader stops; below `hold`, so that it stops first.
        retry: Pause between two tries.
    """

    hold: float = 15.0
    renew: float = 10.0
    retry: float = 2.0


class Leadership:
    """Gains, keeps and gives up the Lease.

    Args:
        kube: The client.
        candidate: Who asks for it.
        clock: For the times that people read in the Lease.
        terms: How long it holds.
    """

    def __init__(self, kube: Kube, *, candidate: Candidate, clock: Clock, terms: Terms | None = None) -> None:
        self._kube = kube
        self._candidate = candidate
        self._clock = clock
        self._terms = terms or Terms()
        self._seen: tuple[str, float] = ("", 0.0)
        self._other: Object | None = None
        self._own: Object | None = None
        self.leading = False
        """Whether this operator works."""
        self._tell(leading=False)

    @property
    def standing_by(self) -> bool:
        """Whether another operator was seen to hold the Lease, not longer ago than it lasts."""
        return self._other is not None and not self._expired(self._other)

    @property
    def leader_url(self) -> str | None:
        """Base URL of the other operator that leads; None where none is known."""
        if self.leading or self._other is None or not self.standing_by:
            return None
        return (self._other["metadata"].get("annotations") or {}).get(Annotation.LEADER_URL) or None

    async def gain(self) -> None:
        """Wait until this operator leads."""
        while True:
            if await self._try():
                break
            await asyncio.sleep(self._pause())
        self._tell(leading=True)
        logger.info("%s leads", self._candidate.identity)

    async def lead(self, work: Coroutine[Any, Any, None]) -> None:
        """Work until the work ends, or the Lease is lost.

        Raises:
            LeadershipLostError: It was lost; the work is cancelled and has ended.
        """
        try:
            await first_of(self._keep(), work)
        except LeadershipLostError:
            self._tell(leading=False)
            raise

    async def release(self) -> None:
        """Let another operator take over at once. Only after all work has ended."""
        if not self.leading:
            return
        self._tell(leading=False)
        try:
            async with asyncio.timeout(self._terms.retry):
                lease = await self._kube.get(LEASE, self._candidate.namespace, self._candidate.lease)
                if lease is not None and _holder(lease) == self._candidate.identity:
                    free = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": self._now()}
                    await self._kube.merge(lease, {"spec": free})
        except (KubeError, TimeoutError) as error:
            logger.warning("the lease was not given back, the next operator waits until it ends: %s", error)

    def _tell(self, *, leading: bool) -> None:
        self.leading = leading
        LEADER.set(int(leading))

    async def _keep(self) -> None:
        """Renew until that fails for too long."""
        loop = asyncio.get_running_loop()
        renewed = loop.time()
        while True:
            await asyncio.sleep(self._terms.retry)
            began = loop.time()
            try:
                async with asyncio.timeout_at(renewed + self._terms.renew):
                    if await self._try():
                        renewed = began
            except TimeoutError:
                pass
            if self._other is not None:
                raise LeadershipLostError(f"{_holder(self._other)} leads")
            if loop.time() >= renewed + self._terms.renew:
                raise LeadershipLostError(f"the lease could not be renewed for {self._terms.renew:.0f} s")

    async def _try(self) -> bool:
        """Take or renew the Lease; say whether it is this operator's.

        A Lease that was written here and not elsewhere since is renewed by one request: with a slow API server, reading
        it first would take too long.
        """
        try:
            if self._own is not None:
                self._own = await self._kube.merge(self._own, self._change(self._own))
                if self._own is not None:
                    return True
            lease = await self._kube.get(LEASE, self._candidate.namespace, self._candidate.lease)
            if lease is None:
                lease = await self._kube.create(self._new())
                self._look(lease)
                return self._other is None
            self._look(lease)
            if self._other is not None and not self._expired(self._other):
                return False
            self._own = await self._kube.merge(lease, self._change(lease))
        except KubeError as error:
            logger.warning("the lease %s cannot be had: %s", self._candidate.lease, error)
            return False
        if self._own is None:
            return False
        self._other = None
        return True

    def _look(self, lease: Object) -> None:
        version = lease["metadata"]["resourceVersion"]
        if version != self._seen[0]:
            self._seen = (version, asyncio.get_running_loop().time())
        self._other = lease if _holder(lease) not in ("", self._candidate.identity) else None

    def _expired(self, lease: Object) -> bool:
        return asyncio.get_running_loop().time() >= self._ends(lease)

    def _pause(self) -> float:
        """Return the seconds until the next try to gain the Lease: no later than its end."""
        if self._other is None:
            return self._terms.retry
        left = self._ends(self._other) - asyncio.get_running_loop().time()
        return min(self._terms.retry, max(left, 0.0)) or self._terms.retry

    def _ends(self, lease: Object) -> float:
        return self._seen[1] + float(lease["spec"].get("leaseDurationSeconds") or self._terms.hold)

    def _new(self) -> Object:
        metadata = {"namespace": self._candidate.namespace, "name": self._candidate.lease}
        lease: Object = {"apiVersion": LEASE.api_version, "kind": LEASE.name, "metadata": metadata, "spec": {}}
        change = self._change(lease)
        return {**lease, "metadata": {**metadata, **change["metadata"]}, "spec": change["spec"]}

    def _change(self, lease: Object) -> Object:
        spec, now = lease.get("spec") or {}, self._now()
        same = spec.get("holderIdentity") == self._candidate.identity
        return {
            "metadata": {"annotations": {str(Annotation.LEADER_URL): self._candidate.url}},
            "spec": {
                "holderIdentity": self._candidate.identity,
                "leaseDurationSeconds": int(self._terms.hold),
                "acquireTime": spec["acquireTime"] if same else now,
                "renewTime": now,
                "leaseTransitions": spec.get("leaseTransitions", 0) + (0 if same or not spec else 1),
            },
        }

    def _now(self) -> str:
        return to_micro_time(self._clock.now())


def _holder(lease: Object) -> str:
    return str((lease.get("spec") or {}).get("holderIdentity") or "")
