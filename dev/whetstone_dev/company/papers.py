"""What the company has written down: handbook pages of its sites, data sheets, project briefs."""

from collections.abc import Iterator, Sequence
from typing import Final

from whetstone_dev.company.records import Company, Site

_COMMON: Final = (
    ("badges", "Badges", "A lost badge is reported to the front desk on the same day. A new one costs nothing."),
    ("bicycles", "Bicycles", "Bicycles stand in the yard. The company repairs flat tyres on Thursdays."),
    ("meetings", "Meetings", "A meeting has an agenda and ends at five minutes to the hour."),
    ("plants", "Plants", "Plants on window sills belong to whoever waters them."),
    ("printers", "Printers", "Printers take only paper of recycled fibre. Jams are reported to the team on the label."),
    ("visitors", "Visitors", "Visitors wear a yellow badge and are met at the door by their host."),
)
"""Pages that no question is about."""


def collections(companies: Sequence[Company]) -> dict[str, list[dict[str, str]]]:
    """Return the documents of each collection, by its name."""
    return {
        "handbook": [
            *(_page(f"site-{site.id}", f"Working at {site.name}", text) for site, text in _sites(companies)),
            *(_page(*one) for one in _COMMON),
        ],
        "products": [
            _page(
                f"sheet-{one.name.lower()}",
                f"Data sheet: {one.name}",
                f"The {one.name} (order code {one.code}) measures {one.measures}. It weighs {one.grams} grams and runs"
                f" for {one.battery_hours} hours on one charge. The warranty of the {one.name} lasts"
                f" {one.warranty_months} months.",
            )
            for company in companies
            for one in company.products
        ],
        "projects": [
            _page(
                f"brief-{one.id}",
                f"Project brief: {one.name}",
                f"Project {one.name} adapts the {one.product} for {one.customer}. The project lead is the employee with"
                f" the id {one.lead}.",
            )
            for company in companies
            for one in company.projects
        ],
    }


def _sites(companies: Sequence[Company]) -> Iterator[tuple[Site, str]]:
    for company in companies:
        for one in company.sites:
            text = (
                f"Employees at {one.name} have {one.leave_days} days of annual leave. The meal allowance at {one.name}"
                f" is {one.meal_euros} euros a day. Quiet hours begin at {one.quiet_from} o'clock."
            )
            yield one, text


def _page(name: str, title: str, text: str) -> dict[str, str]:
    return {"id": name, "title": title, "text": text}
