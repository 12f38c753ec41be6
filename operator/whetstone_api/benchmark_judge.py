"""A model that reads the trajectories of a BenchmarkRun and says what it thinks of them, apart from the reward."""

from typing import Annotated, ClassVar

from pydantic import Field

from whetstone_api.access import SecretKeyRef
from whetstone_api.model_endpoint import ModelEndpoint
from whetstone_api.schema import ApiModel, DecimalString, Rule, SignedDecimalString
from whetstone_api.wire import WireModel

JUDGE_FOLDER = "judge"
"""Folder in the run's output; it has one for each judge, named by its digest."""
JUDGE_FILE = "judge.json"
JUDGE_KEY_VARIABLE = "WHETSTONE_JUDGE_KEY"
"""The runner's variable with the key that the judge asks for."""


JUDGE_AUTHORITY_VARIABLE = "WHETSTONE_JUDGE_CA"
"""The runner's variable with the certificate authorities that the judge's certificate is checked against."""


class JudgeSpec(ModelEndpoint):
    """Who judges, asked after the last trial."""

    certificate_authority_ref: SecretKeyRef | None = None
    """Key of a Secret, as a rule `ca.crt`, with the certificate authorities to trust for `url` instead of the
    system's."""
    maximum_tokens: Annotated[int, Field(ge=1, le=1_000_000_000_000)] | None = None
    """What the judge may use up; trials that are left then stay without an opinion."""
    rules: ClassVar[tuple[Rule, ...]] = (
        *ModelEndpoint.rules,
        Rule(
            rule="!has(self.certificateAuthorityRef) || (has(self.url) && self.url.startsWith('https://'))",
            message="certificateAuthorityRef belongs to a url that begins with https://",
        ),
    )


class JudgeAgreement(ApiModel):
    """How often the judge's opinion on success is the verifier's."""

    trials: int
    """Trials with both."""
    agreement: DecimalString
    """Share on which they agree."""
    kappa: SignedDecimalString | None = None
    """Cohen's kappa: agreement beyond chance; absent where one answer was always given by both."""


class Judged(ApiModel):
    """What a judge said of a run's scored trials."""

    uri: Annotated[str, Field(max_length=512)]
    """Folder with its answers, word by word."""
    judge: Annotated[str, Field(max_length=71)]
    """Digest of rubric, model and sampling: what must be equal for two judgements to be compared."""
    model: Annotated[str, Field(max_length=253)]
    """Model that was asked."""
    trials: int
    """Trials with an opinion, which the figures are over."""
    unparsed: int
    """Trials whose answer was none that the rubric asks for; they are in no figure."""
    unanswered: int
    """Trials that the judge did not answer, or whose turn did not come."""
    reasoning: DecimalString | None = None
    """Quality of the reasoning, 1 to 5, mean over trials."""
    completeness: DecimalString | None = None
    """How much of the task was done, 1 to 5, mean over trials."""
    agreement: JudgeAgreement | None = None
    """Its opinion on success beside the verifier's."""
    tokens: int = 0
    """Prompt and completion tokens that it used."""
    stopped: Annotated[str, Field(max_length=512)] | None = None
    """Why some trials have no answer."""


class TrialOpinion(WireModel):
    """What a judge said of one trial."""

    trial: str
    reasoning: int | None = None
    """1 to 5; absent for an answer that is none."""
    completeness: int | None = None
    solved: bool | None = None
    why: str | None = None


class JudgeArtifact(WireModel):
    """`judge.json`."""

    judged: Judged
    opinions: list[TrialOpinion] = Field(default_factory=list)
