"""The page of `whetstone data` names every command and every option."""

import argparse
from collections.abc import Iterator
from pathlib import Path

import pytest
from whetstone_cli import data

PAGE = (Path(__file__).parents[3] / "docs" / "data.md").read_text()


def commands() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    parser = argparse.ArgumentParser()
    data.add_commands(parser.add_subparsers())
    one = below(parser)["data"]
    for name, command in below(one).items():
        yield name, command
        yield from ((f"{name} {source}", parser) for source, parser in below(command).items())


def below(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    found = (dict(action.choices) for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return next(found, {})


@pytest.mark.parametrize(("name", "parser"), list(commands()))
def test_every_option_is_on_the_page(name: str, parser: argparse.ArgumentParser) -> None:
    assert f"whetstone data {name}" in PAGE
    options = {word for action in parser._actions for word in action.option_strings if word.startswith("--")}
    assert {option for option in options - {"--help"} if f"`{option}" not in PAGE and f" {option}" not in PAGE} == set()
