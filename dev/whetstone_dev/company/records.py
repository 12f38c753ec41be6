"""Draw the company: sites, teams, employees, products, projects and tickets, in one half for each split."""

from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Final

SEED: Final = 1


class Split(StrEnum):
    """What a half of the company is for."""

    TRAIN = "train"
    TEST = "test"


_SITES: Final = {
    Split.TRAIN: ("Alder Quay", "Birchmoor", "Cairn Hill", "Dunlin Bay", "Elmgate"),
    Split.TEST: ("Foxley", "Garnet Point", "Heron Mill"),
}
_TEAMS: Final = {
    Split.TRAIN: ("Optics", "Firmware", "Calibration", "Packaging", "Acoustics", "Logistics", "Metrology", "Support"),
    Split.TEST: ("Thermals", "Enclosures", "Sensors", "Documentation"),
}
_FIRST: Final = {
    Split.TRAIN: ("Ada", "Bram", "Celia", "Dorian", "Edda", "Farid", "Greta", "Hugo", "Ines", "Jonas", "Kaya", "Lars"),
    Split.TEST: ("Mira", "Nils", "Odile", "Pavel", "Quinn", "Rosa", "Sami", "Tova"),
}
_LAST: Final = {
    Split.TRAIN: ("Quill", "Harrow", "Lindqvist", "Marsh", "Okoro", "Penrose", "Sato", "Thorne"),
    Split.TEST: ("Underhill", "Vance", "Wilder", "Yilmaz"),
}
_PRODUCTS: Final = {
    Split.TRAIN: (
        "Kestrel", "Merlin", "Osprey", "Plover", "Curlew", "Dotterel", "Egret", "Fulmar", "Gannet", "Hobby", "Jackdaw",
        "Knot", "Lapwing", "Nightjar", "Petrel", "Quail", "Redstart", "Siskin", "Turnstone", "Wheatear",
    ),
    Split.TEST: (
        "Avocet", "Bittern", "Crake", "Dunnock", "Firecrest", "Grebe", "Linnet", "Ouzel", "Pipit", "Ruff",
    ),
}  # fmt: skip
_MEASURES: Final = ("humidity", "sound pressure", "surface roughness", "vibration", "air flow", "light", "torque", "pH")
_PROJECTS: Final = {
    Split.TRAIN: (
        "Amber", "Basalt", "Cobalt", "Diorite", "Ember", "Feldspar", "Granite", "Hematite", "Indigo", "Jasper",
        "Kaolin", "Limestone", "Marble", "Nickel",
    ),
    Split.TEST: ("Onyx", "Pumice", "Quartz", "Ruby", "Slate", "Topaz", "Umber", "Zircon"),
}  # fmt: skip
_CUSTOMERS: Final = {
    Split.TRAIN: ("Northgate Rail", "Lumen Glass", "Oakfield Dairy", "Sable Motors", "Tidal Works", "Vesper Air"),
    Split.TEST: ("Willow Clinics", "Ironbark Paper", "Copperline", "Hazel Foods"),
}
PRIORITIES: Final = ("low", "normal", "urgent")
STATUSES: Final = ("open", "waiting", "closed")


@dataclass(frozen=True, kw_only=True)
class Site:
    """A place of work, whose rules its handbook page has."""

    id: str
    name: str
    leave_days: int
    meal_euros: int
    quiet_from: int


@dataclass(frozen=True, kw_only=True)
class Employee:
    """A person."""

    id: str
    name: str
    email: str
    phone: str
    team: str
    site: str


@dataclass(frozen=True, kw_only=True)
class Team:
    """A team with its lead."""

    name: str
    lead: str
    budget: int


@dataclass(frozen=True, kw_only=True)
class Product:
    """An instrument: the API knows the stock, its data sheet the rest."""

    code: str
    name: str
    measures: str
    warranty_months: int
    battery_hours: int
    grams: int
    units: int
    price: int


@dataclass(frozen=True, kw_only=True)
class Project:
    """A piece of work for a customer."""

    id: str
    name: str
    customer: str
    lead: str
    product: str


@dataclass(frozen=True, kw_only=True)
class Ticket:
    """A complaint."""

    number: int
    product: str
    assignee: str
    priority: str
    status: str


@dataclass(frozen=True, kw_only=True)
class Company:
    """One half of the company."""

    split: Split
    sites: tuple[Site, ...]
    teams: tuple[Team, ...]
    employees: tuple[Employee, ...]
    products: tuple[Product, ...]
    projects: tuple[Project, ...]
    tickets: tuple[Ticket, ...]


def draw(split: Split, seed: int = SEED) -> Company:
    """Draw a half of the company."""
    rng = Random(f"company/{split}/{seed}")
    base = 0 if split is Split.TRAIN else 500
    leave = rng.sample(range(24, 36), len(_SITES[split]))
    meals = rng.sample(range(18, 40), len(_SITES[split]))
    sites = tuple(
        Site(
            id=name.lower().replace(" ", "-"),
            name=name,
            leave_days=leave[place],
            meal_euros=meals[place],
            quiet_from=rng.choice((18, 19, 20, 21)),
        )
        for place, name in enumerate(_SITES[split])
    )
    employees = _employees(split, rng, base, sites)
    teams = tuple(
        Team(name=name, lead=employees[place].id, budget=1000 * rng.randrange(80, 900))
        for place, name in enumerate(_TEAMS[split])
    )
    products = _products(split, rng, base)
    return Company(
        split=split,
        sites=sites,
        teams=teams,
        employees=employees,
        products=products,
        projects=_projects(split, rng, employees, products),
        tickets=_tickets(rng, base, employees, products),
    )


def _employees(split: Split, rng: Random, base: int, sites: tuple[Site, ...]) -> tuple[Employee, ...]:
    names = [f"{first} {last}" for first in _FIRST[split] for last in _LAST[split]]
    rng.shuffle(names)
    # Each team has its lead first, so the first employees go round the teams.
    return tuple(
        Employee(
            id=f"e{base + number}",
            name=name,
            email=f"{name.lower().replace(' ', '.')}@fernhill.example",
            phone=str(rng.randrange(2000, 8999)),
            team=_TEAMS[split][number % len(_TEAMS[split])],
            site=rng.choice(sites).name,
        )
        for number, name in enumerate(names[: 40 if split is Split.TRAIN else 20])
    )


def _products(split: Split, rng: Random, base: int) -> tuple[Product, ...]:
    return tuple(
        Product(
            code=f"FI-{base + 100 + 7 * number}",
            name=name,
            measures=_MEASURES[number % len(_MEASURES)],
            warranty_months=rng.choice((12, 18, 24, 30, 36, 48, 60)),
            battery_hours=rng.randrange(6, 90),
            grams=10 * rng.randrange(12, 240),
            units=rng.randrange(3, 900),
            price=rng.randrange(40, 2400),
        )
        for number, name in enumerate(_PRODUCTS[split])
    )


def _projects(
    split: Split, rng: Random, employees: tuple[Employee, ...], products: tuple[Product, ...]
) -> tuple[Project, ...]:
    return tuple(
        Project(
            id=name.lower(),
            name=name,
            customer=rng.choice(_CUSTOMERS[split]),
            lead=rng.choice(employees).id,
            product=rng.choice(products).name,
        )
        for name in _PROJECTS[split]
    )


def _tickets(
    rng: Random, base: int, employees: tuple[Employee, ...], products: tuple[Product, ...]
) -> tuple[Ticket, ...]:
    return tuple(
        Ticket(
            number=4000 + base + number,
            product=rng.choice(products).name,
            assignee=rng.choice(employees).id,
            priority=rng.choice(PRIORITIES),
            status=rng.choice(STATUSES),
        )
        for number in range(30 if base == 0 else 15)
    )
