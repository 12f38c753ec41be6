"""What a run with a `toolUse` suite calls beside the model: the API, Elasticsearch, judge, overseer and witness."""

import contextlib
import os
import ssl
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import httpx
from whetstone_api.benchmark_tooluse import (
    API_KEY_VARIABLE,
    OVERSEER_KEY_VARIABLE,
    RETRIEVER_KEY_VARIABLE,
    SCORER_KEY_VARIABLE,
    WITNESS_KEY_VARIABLE,
)
from whetstone_api.jobs import ToolUseConfig
from whetstone_api.model_endpoint import ModelEndpoint
from whetstone_api.reports import Outcome
from whetstone_api.vocabulary import Reason

from whetstone_agent.agents.errors import ModelRefusedError
from whetstone_agent.api_key import NO_KEY
from whetstone_agent.failure import RunFailure
from whetstone_agent.tooluse.agents import ModelSettings
from whetstone_agent.tooluse.api_client import ApiClient
from whetstone_agent.tooluse.elasticsearch import Elasticsearch
from whetstone_agent.tooluse.errors import ApiError, ApiUnavailableError
from whetstone_agent.tooluse.judges import Judge, JudgeFailedError, JudgeUnclearError
from whetstone_agent.tooluse.world import World

PATIENCE_SECONDS: Final = 60.0
"""How long an API that does not answer is asked again before the Job is."""
_PAUSE_SECONDS: Final = 3.0
_SUITE: Final = "spec.suite.toolUse"


@dataclass(frozen=True, kw_only=True)
class Services:
    """Clients; threads may share them."""

    api: ApiClient | None
    search: Elasticsearch | None
    judge: Judge | None
    overseer: Judge | None
    witness: Judge | None


def open_services(config: ToolUseConfig, world: World, stack: contextlib.ExitStack) -> Services:
    """Return the clients that a run needs.

    Args:
        config: What to do.
        world: What the instances are about.
        stack: Closes them.

    Raises:
        RunFailure: `INVALID_SPEC`: nobody says where the API is, or there is none to say it of.
    """
    suite = config.tool_use
    judge = _model(suite.scorer.judge, config.scorer_url, SCORER_KEY_VARIABLE)
    overseer = _model(suite.overseer, config.overseer_url, OVERSEER_KEY_VARIABLE)
    witness = _model(suite.expert.witness, config.witness_url, WITNESS_KEY_VARIABLE)
    url = _api_url(config, world)
    api = ApiClient(url, headers=_headers(config), timeout_seconds=suite.api.timeout_seconds) if url else None
    search = _search(config)
    for one in (judge, overseer, witness, api, search):
        if one is not None:
            stack.enter_context(one)
    return Services(api=api, search=search, judge=judge, overseer=overseer, witness=witness)


def check_services(
    services: Services,
    *,
    collections: Iterable[str] = (),
    patience_seconds: float = PATIENCE_SECONDS,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Make sure, before the first trial, that the API can be reached and that the models say yes or no.

    Args:
        services: From `open_services`.
        collections: What Elasticsearch must have an index of.
        patience_seconds: How long an API that does not answer is asked again.
        clock: Seconds of a clock that never goes back.
        sleep: Waits for seconds.

    Raises:
        RunFailure: `REFERENCE_NOT_READY`, to be tried again, for what does not answer; `MODEL_NOT_SERVED` for a
            server that refuses the key or knows no such model; `INVALID_SPEC` for a model that says neither yes nor
            no where the answer is plain.
    """
    if services.api is not None:
        _reach(services.api, patience_seconds, clock, sleep)
    if services.search is not None:
        _has_indexes(services.search, collections)
    if services.judge is not None:
        judge = services.judge
        _heard(lambda: judge.matches("How much is one and one?", ["2"], "2"), f"{_SUITE}.scorer.judge")
    if services.overseer is not None:
        overseer = services.overseer
        _heard(lambda: overseer.hopeless("How much is one and one?", []), f"{_SUITE}.overseer")
    if services.witness is not None:
        witness = services.witness
        plain = partial(witness.witnesses, "How much is one and one?", wanted="add 1 1", made="sum 1 1", result="2")
        _heard(plain, f"{_SUITE}.expert.witness")


def _reach(api: ApiClient, patience: float, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
    ends = clock() + patience
    while True:
        try:
            api.reach()
        except httpx.HTTPError as error:
            if clock() + _PAUSE_SECONDS > ends:
                message = f"{_SUITE}.api.url: {api.url} does not answer: {error or type(error).__name__}"
                raise RunFailure(Reason.REFERENCE_NOT_READY, message, outcome=Outcome.RETRY) from error
            sleep(_PAUSE_SECONDS)
        else:
            return


def _has_indexes(search: Elasticsearch, collections: Iterable[str]) -> None:
    field = f"{_SUITE}.retriever.elasticsearch"
    try:
        search.check(collections)
    except ApiUnavailableError as error:
        raise RunFailure(Reason.REFERENCE_NOT_READY, f"{field}: {error}", outcome=Outcome.RETRY) from error
    except ApiError as error:
        raise RunFailure(Reason.INVALID_SPEC, f"{field}: {error}") from error


def _heard(ask: Callable[[], bool], field: str) -> None:
    try:
        ask()
    except JudgeFailedError as error:
        raise RunFailure(Reason.REFERENCE_NOT_READY, f"{field}: {error}", outcome=Outcome.RETRY) from error
    except ModelRefusedError as error:
        raise RunFailure(Reason.MODEL_NOT_SERVED, f"{field}: {error}; fix its model or its key") from error
    except JudgeUnclearError as error:
        message = f"{field}: {error} where the answer is plain; name a model that follows instructions"
        raise RunFailure(Reason.INVALID_SPEC, message) from error


def _api_url(config: ToolUseConfig, world: World) -> str | None:
    given = config.tool_use.api
    if world.api is None:
        if given.url is not None or given.secret_ref is not None:
            message = f"{_SUITE}.api: the environment has no openapi.yaml; add it, or leave url and secretRef out"
            raise RunFailure(Reason.INVALID_SPEC, message)
        return None
    url = given.url or world.api.server
    if url is None:
        raise RunFailure(Reason.INVALID_SPEC, f"{_SUITE}.api.url: the API's document names no server; set it")
    return url


def _search(config: ToolUseConfig) -> Elasticsearch | None:
    retriever = config.tool_use.retriever
    if retriever is None:
        return None
    given = retriever.elasticsearch
    authority = Path(given.authority_path) if given.authority_path is not None else None
    try:
        return Elasticsearch(
            given.url,
            authorization=os.environ.get(RETRIEVER_KEY_VARIABLE),
            authority=authority,
            index_prefix=given.index_prefix or "",
            timeout_seconds=given.timeout_seconds,
        )
    except (OSError, ssl.SSLError) as error:
        message = f"{_SUITE}.retriever.elasticsearch.authority: is no certificate authority in PEM: {error}"
        raise RunFailure(Reason.INVALID_SPEC, message) from error


def _headers(config: ToolUseConfig) -> dict[str, str]:
    key, header = os.environ.get(API_KEY_VARIABLE), config.tool_use.api.header
    if not key:
        return {}
    return {header: f"Bearer {key}" if header.lower() == "authorization" else key}


def _model(endpoint: ModelEndpoint | None, url: str | None, variable: str) -> Judge | None:
    if endpoint is None or url is None:
        return None
    return Judge(ModelSettings(url=url, model=endpoint.model), api_key=os.environ.get(variable) or NO_KEY)
