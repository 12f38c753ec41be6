"""Asks a judge for its opinion on each scored trial, after the last one: nothing here can change a reward.

Every answer is kept, word by word, as soon as it has come: a killed runner asks for none of them again. A judge that
does not answer costs a bounded time and its opinion, never the run.
"""

import asyncio
import json
import logging
import os
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
from whetstone_api.benchmark_judge import (
    JUDGE_AUTHORITY_VARIABLE,
    JUDGE_FILE,
    JUDGE_FOLDER,
    JUDGE_KEY_VARIABLE,
    JudgeAgreement,
    JudgeArtifact,
    Judged,
    JudgeSpec,
    TrialOpinion,
)
from whetstone_api.jobs import RunConfig
from whetstone_api.run_artifact import RunArtifact
from whetstone_artifacts.agreement import agreement, cohens_kappa
from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.figures import SOLVED, decimal, mean
from whetstone_artifacts.lock import output_lock
from whetstone_artifacts.replacing import replacing
from whetstone_artifacts.report.trials import find_trials, read_detail

from whetstone_agent.judge_prompt import SAMPLING, judge_digest, question, read_answer

log = logging.getLogger(__name__)

ANSWERS_FILE: Final = "answers.jsonl"
_READ_CHARACTERS: Final = 400_000
_REQUEST_SECONDS: Final = 300.0
_TRIES: Final = 3
_PAUSE_SECONDS: Final = 5.0
_GIVEN_UP: Final = 3
"""Trials in a row without an answer, after which no other one is asked about."""
_AT_ONCE: Final = 8
_WAIT_SECONDS: Final = 600.0

type Pause = Callable[[float], Awaitable[None]]


class NoAnswerError(Exception):
    """The judge does not answer; the message says how."""


@dataclass(kw_only=True)
class Answers:
    """What the judge has said so far."""

    path: Path
    texts: dict[str, str] = field(default_factory=dict)
    tokens: int = 0
    failures: int = 0
    """Trials in a row without an answer."""
    stopped: str | None = None

    @classmethod
    def read(cls, path: Path) -> "Answers":
        """Return the answers of earlier tries; a line that was half written is asked for again."""
        answers = cls(path=path)
        for line in path.read_text().splitlines() if path.is_file() else ():
            try:
                one = json.loads(line)
                answers.take(str(one["trial"]), str(one["text"]), int(one["tokens"]))
            except (ValueError, LookupError, TypeError):
                continue
        return answers

    def take(self, trial: str, text: str, tokens: int) -> None:
        """Note an answer."""
        self.texts[trial] = text
        self.tokens += tokens

    def keep(self, trial: str, text: str, tokens: int) -> None:
        """Note an answer, on disk too."""
        self.take(trial, text, tokens)
        with self.path.open("a") as stream:
            # A line that a kill cut off must not swallow the next one.
            stream.write("\n" + json.dumps({"trial": trial, "text": text, "tokens": tokens}) + "\n")


async def judge_run(config: RunConfig, artifact: RunArtifact) -> Judged | None:
    """Return what the judge of a run's spec says; None where it names none. Never raises for the judge's sake.

    Args:
        config: Names the judge and the output.
        artifact: The finished run.
    """
    if config.judge is None or config.judge_url is None:
        return None
    try:
        at_once = min(config.concurrency, _AT_ONCE)
        return await judge(Path(config.output_path), artifact, spec=config.judge, url=config.judge_url, at_once=at_once)
    except (OSError, ArtifactError) as error:
        log.exception("the trials were not judged")
        scored = sum(one.reward is not None for task in artifact.tasks for one in task.trials)
        return Judged(
            uri=f"{artifact.results.uri}/{JUDGE_FOLDER}",
            judge=judge_digest(config.judge.model),
            model=config.judge.model,
            trials=0,
            unparsed=0,
            unanswered=scored,
            stopped=f"the answers cannot be kept: {error}"[:512],
        )


async def judge(
    output: Path,
    artifact: RunArtifact,
    *,
    spec: JudgeSpec,
    url: str,
    at_once: int = _AT_ONCE,
    pause: Pause = asyncio.sleep,
) -> Judged:
    """Ask about every scored trial that left a trajectory and has no answer yet, and say what came out.

    Args:
        output: Folder of the results.
        artifact: The finished run.
        spec: The judge.
        url: Base URL of its API.
        at_once: Requests at a time.
        pause: Waits between two tries, by seconds.

    Raises:
        OSError: The answers cannot be written.
    """
    identity = judge_digest(spec.model)
    folder = output / JUDGE_FOLDER / identity.removeprefix("sha256:")[:16]
    folder.mkdir(parents=True, exist_ok=True)
    with output_lock(folder, wait_seconds=_WAIT_SECONDS):
        rewards = {one.trial: one.reward for task in artifact.tasks for one in task.trials if one.reward is not None}
        answers = Answers.read(folder / ANSWERS_FILE)
        questions = _questions(output, rewards)
        await _ask_all(_Judge(spec=spec, url=url, pause=pause), questions, answers, at_once=at_once)
        opinions = [read_answer(trial, answers.texts[trial]) for trial in questions if trial in answers.texts]
        told = Judged(
            uri=f"{artifact.results.uri}/{folder.relative_to(output)}",
            judge=identity,
            model=spec.model,
            tokens=answers.tokens,
            unanswered=len(questions) - len(opinions),
            stopped=answers.stopped,
            **_figures(opinions, rewards),
        )
        with replacing(folder / JUDGE_FILE) as temporary:
            temporary.write_text(JudgeArtifact(judged=told, opinions=opinions).to_json() + "\n")
        return told


def _questions(output: Path, rewards: dict[str, float]) -> dict[str, list[dict[str, str]]]:
    found = {}
    for trial, place in find_trials(output, rewards).items():
        steps = read_detail(place, results=output, room=_READ_CHARACTERS).steps
        if steps:
            found[trial] = question(steps)
    return dict(sorted(found.items()))


def _figures(opinions: Sequence[TrialOpinion], rewards: dict[str, float]) -> dict[str, Any]:
    scored = [one for one in opinions if one.solved is not None]
    pairs = [(one.solved, rewards[one.trial] >= SOLVED) for one in scored]
    share, kappa = agreement(pairs), cohens_kappa(pairs)
    figures: dict[str, Any] = {"trials": len(scored), "unparsed": len(opinions) - len(scored)}
    if share is None:
        return figures
    told = JudgeAgreement(trials=len(pairs), agreement=decimal(share), kappa=None if kappa is None else decimal(kappa))
    return {
        **figures,
        "reasoning": decimal(mean([one.reasoning or 0 for one in scored])),
        "completeness": decimal(mean([one.completeness or 0 for one in scored])),
        "agreement": told,
    }


@dataclass(frozen=True, kw_only=True)
class _Judge:
    spec: JudgeSpec
    url: str
    pause: Pause

    async def ask(self, session: aiohttp.ClientSession, messages: list[dict[str, str]]) -> tuple[str, int]:
        """Return the answer and the tokens that it took.

        Raises:
            NoAnswerError: There was none after some tries.
        """
        why = ""
        for number in range(_TRIES):
            if number:
                await self.pause(_PAUSE_SECONDS * number)
            try:
                return await self._once(session, messages)
            except (aiohttp.ClientError, TimeoutError, ValueError, LookupError, TypeError) as error:
                why = str(error) or type(error).__name__
                if isinstance(error, aiohttp.ClientResponseError) and 400 <= error.status < 500 and error.status != 429:
                    break
        raise NoAnswerError(why)

    async def _once(self, session: aiohttp.ClientSession, messages: list[dict[str, str]]) -> tuple[str, int]:
        key = os.environ.get(JUDGE_KEY_VARIABLE)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        body = {"model": self.spec.model, "messages": messages, **SAMPLING}
        async with session.post(f"{self.url.rstrip('/')}/chat/completions", json=body, headers=headers) as response:
            response.raise_for_status()
            answer = await response.json()
        usage = answer.get("usage") or {}
        text = answer["choices"][0]["message"]["content"] or ""
        return str(text), int(usage.get("prompt_tokens") or 0) + int(usage.get("completion_tokens") or 0)


async def _ask_all(one: _Judge, questions: dict[str, list[dict[str, str]]], answers: Answers, *, at_once: int) -> None:
    free = asyncio.Semaphore(at_once)
    timeout = aiohttp.ClientTimeout(total=_REQUEST_SECONDS)

    async def ask(trial: str, messages: list[dict[str, str]]) -> None:
        async with free:
            if not _may_ask(one.spec, answers):
                return
            try:
                text, tokens = await one.ask(session, messages)
            except NoAnswerError as error:
                answers.failures += 1
                log.warning("the judge does not answer about trial %s: %s", trial, error)
                answers.stopped = f"the judge {one.spec.model} at {one.url} does not answer: {error}"[:512]
                return
            answers.failures = 0
            answers.keep(trial, text, tokens)

    try:
        connector = aiohttp.TCPConnector(ssl=_trusted())
    except ssl.SSLError as error:
        answers.stopped = (
            f"spec.judge.certificateAuthorityRef names no certificate in PEM format ({error}); fix the Secret"
        )
        return
    async with (
        aiohttp.ClientSession(timeout=timeout, trust_env=True, connector=connector) as session,
        asyncio.TaskGroup() as group,
    ):
        for trial, messages in questions.items():
            if trial not in answers.texts:
                group.create_task(ask(trial, messages))


def _trusted() -> ssl.SSLContext | bool:
    """Return what the judge's certificate is checked against.

    Raises:
        ssl.SSLError: The authorities of the spec are none.
    """
    authorities = os.environ.get(JUDGE_AUTHORITY_VARIABLE)
    return ssl.create_default_context(cadata=authorities) if authorities else True


def _may_ask(spec: JudgeSpec, answers: Answers) -> bool:
    if answers.failures >= _GIVEN_UP:
        return False
    if spec.maximum_tokens is not None and answers.tokens >= spec.maximum_tokens:
        answers.stopped = f"the judge used up maximumTokens ({answers.tokens} of {spec.maximum_tokens})"
        return False
    return True
