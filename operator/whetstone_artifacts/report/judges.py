"""What judges said of a run, read from its folder with bounds."""

from pathlib import Path

from pydantic import ValidationError
from whetstone_api.benchmark_judge import JUDGE_FILE, JUDGE_FOLDER, JudgeArtifact, TrialOpinion

from whetstone_artifacts.report.trials import folders
from whetstone_artifacts.report.untrusted import clean, read_json


def read_judges(results: Path) -> list[JudgeArtifact]:
    """Return what each judge of a run said; one that cannot be read is left out."""
    found = []
    for folder in folders(results / JUDGE_FOLDER):
        try:
            found.append(JudgeArtifact.model_validate(read_json(folder / JUDGE_FILE, below=results)))
        except ValidationError:
            continue
    return found


def judge_figures(judges: list[JudgeArtifact]) -> dict[str, tuple[str, str]]:
    """Return label and value of each judge's figures, by a name."""
    figures = {}
    for one in judges:
        told, name = one.judged, f"judge {one.judged.model} ({one.judged.judge[7:15]})"
        values = {"reasoning": told.reasoning, "completeness": told.completeness}
        if told.agreement is not None:
            values |= {"agreement": told.agreement.agreement, "kappa": told.agreement.kappa}
        counts = {"trials": told.trials, "unparsed": told.unparsed, "unanswered": told.unanswered}
        for key, value in (values | counts).items():
            if value is not None:
                figures[f"{told.judge}.{key}"] = (clean(f"{name}: {key}"), str(value))
    return figures


def opinions(judges: list[JudgeArtifact], trial: str) -> list[str]:
    """Return what each judge said of a trial, as sentences."""
    found = [(one.judged.model, said) for one in judges for said in one.opinions if said.trial == trial]
    return [clean(f"Judge {model}: {_sentence(said)}") for model, said in found]


def _sentence(said: TrialOpinion) -> str:
    if said.solved is None:
        return "its answer was none that the rubric asks for"
    scores = f"reasoning {said.reasoning} of 5, completeness {said.completeness} of 5"
    return f"{scores}, {'solved' if said.solved else 'not solved'}{f': {said.why}' if said.why else ''}"
