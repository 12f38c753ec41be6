"""Questions on the company, each with the hops that answer it, for the converter."""

from collections.abc import Callable, Iterator, Sequence
from itertools import cycle, islice
from random import Random
from typing import Any, Final

from whetstone_agent.tooluse.convert import Asked, Hop, Policy, RawQuestion
from whetstone_agent.tooluse.instances import Availability

from whetstone_dev.company.records import SEED, STATUSES, Company, Employee, Product, Project, Site, Split, Team, Ticket

type Draft = tuple[str, str, list[Hop], str | None]
"""What it is about, the question, its hops, and the answer where it is not the last hop's."""
type Family = Callable[[Company, Random], Iterator[Draft]]

_CASES: Final[dict[str, tuple[tuple[Availability, ...], ...]]] = {
    "rag": ((Availability.BOTH,), (Availability.ONLY_RAG,), (Availability.ONLY_API,), (Availability.BOTH,)),
    "api": ((Availability.BOTH,), (Availability.ONLY_API,), (Availability.ONLY_RAG,), (Availability.BOTH,)),
    "mixed": (
        (Availability.BOTH,),
        (Availability.BOTH,),
        (Availability.BOTH,),
        (Availability.ONLY_RAG,),
        (Availability.ONLY_API,),
    ),
    "none": ((Availability.NEITHER,), (Availability.BOTH,)),
}
"""Which scenarios questions of a kind get, in turn."""


def _mixed[T](things: Sequence[T], rng: Random) -> list[T]:
    return rng.sample(things, len(things))


def _site(company: Company, rng: Random) -> Iterator[Draft]:
    for one in _mixed(company.sites, rng):
        yield one.name, f"How many days of annual leave do employees at {one.name} have?", [_leave(one)], None
        yield one.name, f"How many euros a day is the meal allowance at {one.name}?", [_meals(one)], None


def _sheet(company: Company, rng: Random) -> Iterator[Draft]:
    for one in _mixed(company.products, rng):
        yield one.name, f"How many months does the warranty of the {one.name} last?", [_warranty(one)], None


def _customer(company: Company, rng: Random) -> Iterator[Draft]:
    for one in _mixed(company.projects, rng):
        hop = Hop(
            collection="projects", document=f"brief-{one.id}", query=f"Project {one.name} customer", answer=one.customer
        )
        yield one.name, f"For which customer is project {one.name}?", [hop], None


def _email(company: Company, rng: Random) -> Iterator[Draft]:
    for one in _mixed(company.employees, rng):
        yield (
            one.id,
            f"What is the email address of the employee with the id {one.id}?",
            [_employee(one, "email")],
            None,
        )


def _stock(company: Company, rng: Random) -> Iterator[Draft]:
    for one in _mixed(company.products, rng):
        yield one.code, f"How many units of {one.code} are in stock?", [_units(one)], None


def _status(company: Company, rng: Random) -> Iterator[Draft]:
    for one in _mixed(company.tickets, rng):
        yield str(one.number), f"What is the status of ticket {one.number}?", [_ticket(one, "status")], None


def _ticket_count(company: Company, rng: Random) -> Iterator[Draft]:
    for number, one in enumerate(_mixed(company.products, rng)):
        status = STATUSES[number % len(STATUSES)]
        many = sum(each.product == one.name and each.status == status for each in company.tickets)
        args = {"status": status, "product": one.name}
        hop = Hop(operation="listTickets", args=args, field="count", answer=many)
        yield one.name, f"How many tickets on the {one.name} are {status}?", [hop], None


def _lead_email(company: Company, rng: Random) -> Iterator[Draft]:
    for one in _mixed(company.projects, rng):
        lead = _by_id(company, one.lead)
        hops = [_brief(one), _employee(lead, "email", id="{{0}}")]
        yield one.name, f"What is the email address of the lead of project {one.name}?", hops, None


def _product_stock(company: Company, rng: Random) -> Iterator[Draft]:
    for one in _mixed(company.products, rng):
        code = Hop(
            collection="products", document=f"sheet-{one.name.lower()}", query=f"{one.name} order code", answer=one.code
        )
        yield one.name, f"How many units of the {one.name} are in stock?", [code, _units(one, code="{{0}}")], None


def _ticket_warranty(company: Company, rng: Random) -> Iterator[Draft]:
    for one in _mixed(company.tickets, rng):
        product = next(each for each in company.products if each.name == one.product)
        hops = [_ticket(one, "product"), _warranty(product, query="warranty of the {{0}}")]
        yield str(one.number), f"How many months of warranty has the product of ticket {one.number}?", hops, None


def _employee_leave(company: Company, rng: Random) -> Iterator[Draft]:
    for one in _mixed(company.employees, rng):
        hops = [_employee(one, "site"), _leave(_place(company, one.site), query="annual leave at {{0}}")]
        yield one.id, f"How many days of annual leave does the employee with the id {one.id} have?", hops, None


def _project_budget(company: Company, rng: Random) -> Iterator[Draft]:
    for one in _mixed(company.projects, rng):
        lead = _by_id(company, one.lead)
        team = next(each for each in company.teams if each.name == lead.team)
        hops = [_brief(one), _employee(lead, "team", id="{{0}}"), _budget(team, name="{{1}}")]
        yield one.name, f"What is the budget of the team of the lead of project {one.name}?", hops, None


def _ticket_leave(company: Company, rng: Random) -> Iterator[Draft]:
    for one in _mixed(company.tickets, rng):
        person = _by_id(company, one.assignee)
        hops = [
            _ticket(one, "assignee"),
            _employee(person, "site", id="{{0}}"),
            _leave(_place(company, person.site), query="annual leave at {{1}}"),
        ]
        question = f"How many days of annual leave has the employee to whom ticket {one.number} is assigned?"
        yield str(one.number), question, hops, None


def _sheet_and_stock(company: Company, rng: Random) -> Iterator[Draft]:
    for number, one in enumerate(_mixed(company.products, rng)):
        hops: list[Hop] = [_warranty(one), _units(one)]
        question = f"Of the {one.name} ({one.code}), how many months is the warranty, and how many units are in stock?"
        answer = f"{one.warranty_months} months, {one.units} units"
        # Neither needs the other, so either may come first; both orders are in the set.
        yield one.name, question, hops if number % 2 else hops[::-1], answer


def _in_order(company: Company, rng: Random) -> Iterator[Draft]:
    for number, one in enumerate(_mixed(company.products, rng)):
        months, units = (
            f"how many months the warranty of the {one.name} lasts",
            f"how many units of {one.code} are in stock",
        )
        parts: list[tuple[str, Hop, str]] = [
            (months, _warranty(one), f"{one.warranty_months} months"),
            (units, _units(one), f"{one.units} units"),
        ]
        (asked, hop, answer), (then, last, more) = parts if number % 2 else parts[::-1]
        yield (
            one.name,
            f"First find out {asked}, and only then {then}. What are both?",
            [hop, last],
            f"{answer}, {more}",
        )


def _arithmetic(_company: Company, rng: Random) -> Iterator[Draft]:
    while True:
        one, other = rng.randrange(11, 90), rng.randrange(11, 90)
        yield f"{one}-{other}", f"How much is {one} plus {other}?", [], str(one + other)


FAMILIES: Final[dict[str, tuple[Family, str, int]]] = {
    "site": (_site, "rag", 8),
    "warranty": (_sheet, "rag", 9),
    "customer": (_customer, "rag", 7),
    "email": (_email, "api", 9),
    "stock": (_stock, "api", 8),
    "status": (_status, "api", 7),
    "ticket-count": (_ticket_count, "api", 6),
    "lead-email": (_lead_email, "mixed", 9),
    "product-stock": (_product_stock, "mixed", 9),
    "ticket-warranty": (_ticket_warranty, "mixed", 8),
    "employee-leave": (_employee_leave, "mixed", 9),
    "project-budget": (_project_budget, "mixed", 7),
    "ticket-leave": (_ticket_leave, "mixed", 7),
    "sheet-and-stock": (_sheet_and_stock, "mixed", 6),
    "arithmetic": (_arithmetic, "none", 6),
    "in-order": (_in_order, "mixed", 4),
}
"""Families by name: how they are drawn, which scenarios they get, how many of them the training half has."""
_IN_ORDER: Final = frozenset({"in-order"})
"""Families whose questions say in which order their hops are made, though none takes what another gives."""
_POLICY_EVERY: Final = 5
_NO_TOOLS_EVERY: Final = 5
_CONVERSATIONS: Final = 8
"""Questions with further ones that the training half has."""


def questions(company: Company, seed: int = SEED) -> list[RawQuestion]:
    """Return the raw questions on a half of the company."""
    found: list[RawQuestion] = []
    for place, (family, (draw, kind, wanted)) in enumerate(FAMILIES.items()):
        rng = Random(f"questions/{company.split}/{family}/{seed}")
        many = wanted if company.split is Split.TRAIN else -(-wanted // 2)
        drafts = islice(draw(company, rng), many)
        for number, (draft, scenarios) in enumerate(zip(drafts, cycle(_CASES[kind]), strict=False)):
            found.append(_question(family, draft, list(scenarios), number, strict=(place + number) % 2 == 0))
    return [*found, *_conversations(company, Random(f"questions/{company.split}/conversations/{seed}"))]


def _conversations(company: Company, rng: Random) -> Iterator[RawQuestion]:
    """Questions after which the user asks another one, in words that only the conversation explains."""
    many = _CONVERSATIONS if company.split is Split.TRAIN else _CONVERSATIONS // 2
    scenarios = cycle((Availability.BOTH, Availability.BOTH, Availability.BOTH, Availability.ONLY_API))
    drawn = zip(_mixed(company.employees, rng), _mixed(company.products, rng), scenarios, strict=False)
    for number, (person, product, scenario) in enumerate(islice(drawn, many)):
        shared: dict[str, Any] = {"scenarios": [scenario]}
        if number % 2:
            yield RawQuestion(
                id=f"talk-{person.id}-{number}",
                question=f"At which site does the employee with the id {person.id} work?",
                hops=[_employee(person, "site")],
                follow_ups=[
                    Asked(
                        question="And how many days of annual leave do employees have there?",
                        hops=[_leave(_place(company, person.site), query="annual leave at {{0}}")],
                    )
                ],
                **shared,
            )
        else:
            yield RawQuestion(
                id=f"talk-{product.name.lower()}-{number}",
                question=f"How many units of the {product.name} ({product.code}) are in stock?",
                hops=[_units(product)],
                follow_ups=[
                    Asked(question="And how many months does its warranty last?", hops=[_warranty(product)]),
                    # What was said before is enough.
                    Asked(
                        question="How many days is that, at 30 a month?", answers=[str(30 * product.warranty_months)]
                    ),
                ],
                **shared,
            )


def _question(family: str, draft: Draft, scenarios: list[Availability], number: int, *, strict: bool) -> RawQuestion:
    about, text, hops, answer = draft
    fields: dict[str, Any] = {"scenarios": scenarios, "in_order": family in _IN_ORDER}
    if hops and number % _NO_TOOLS_EVERY == _NO_TOOLS_EVERY - 1:
        fields["scenarios"] = [Availability.NEITHER]
    policies = [_policy(hops, strict=strict)] if hops and number % _POLICY_EVERY == 0 else []
    name = f"{family}-{about.lower().replace(' ', '-')}"
    if answer is not None:
        fields["answers"] = [answer]
    return RawQuestion(id=f"{name}-{number}", question=text, hops=hops, policies=policies, **fields)


def _policy(hops: list[Hop], *, strict: bool) -> Policy:
    """Forbid what the question needs, or something else: an agent must read it."""
    last = hops[-1]
    if not strict:
        other = "handbook" if last.collection != "handbook" else "projects"
        return Policy(text=f"Do not use the tool retrieve_documents for the collection {other}.", collections=[other])
    if last.collection:
        text = f"Do not use the tool retrieve_documents for the collection {last.collection}."
        return Policy(text=text, collections=[last.collection])
    return Policy(text=f"The operation {last.operation} must not be called.", operations=[last.operation or ""])


def _by_id(company: Company, name: str) -> Employee:
    return next(one for one in company.employees if one.id == name)


def _place(company: Company, name: str) -> Site:
    return next(one for one in company.sites if one.name == name)


def _leave(site: Site, query: str | None = None) -> Hop:
    asked = query or f"annual leave at {site.name}"
    return Hop(collection="handbook", document=f"site-{site.id}", query=asked, answer=site.leave_days)


def _meals(site: Site) -> Hop:
    asked = f"meal allowance at {site.name}"
    return Hop(collection="handbook", document=f"site-{site.id}", query=asked, answer=site.meal_euros)


def _warranty(product: Product, query: str | None = None) -> Hop:
    asked = query or f"warranty of the {product.name}"
    name = f"sheet-{product.name.lower()}"
    return Hop(collection="products", document=name, query=asked, answer=product.warranty_months)


def _brief(project: Project) -> Hop:
    asked = f"Project {project.name} lead"
    return Hop(collection="projects", document=f"brief-{project.id}", query=asked, answer=project.lead)


def _employee(one: Employee, field: str, **args: str) -> Hop:
    return Hop(operation="getEmployee", args=args or {"id": one.id}, field=field, answer=getattr(one, field))


def _units(one: Product, **args: str) -> Hop:
    return Hop(operation="getStock", args=args or {"code": one.code}, field="units", answer=one.units)


def _budget(one: Team, **args: str) -> Hop:
    return Hop(operation="getTeam", args=args or {"name": one.name}, field="budget", answer=one.budget)


def _ticket(one: Ticket, field: str) -> Hop:
    return Hop(operation="getTicket", args={"number": one.number}, field=field, answer=getattr(one, field))
