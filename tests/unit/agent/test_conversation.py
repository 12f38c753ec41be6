"""What the agent reads in a reply, and that it speaks the language of the training rows."""

import pytest
from whetstone_agent import conversation
from whetstone_agent.conversation import observation, parse_reply
from whetstone_dev.tasks import prompt


@pytest.mark.parametrize("tag", ["bash", "sh", ""])
def test_first_fenced_block_is_the_command(tag: str) -> None:
    action = parse_reply(f"Let me look.\n```{tag}\nls -l\npwd\n```\nthen\n```bash\nrm x\n```\n", complete=True)
    assert action.command == "ls -l\npwd"
    assert not action.finished


@pytest.mark.parametrize("text", ["DONE", " DONE.\n", "All is well.\nDONE", "I cannot do that."])
def test_a_reply_without_a_block_ends(text: str) -> None:
    action = parse_reply(text, complete=True)
    assert action.command is None
    assert action.finished


def test_a_block_followed_by_done_runs_and_ends() -> None:
    action = parse_reply("```bash\ntouch a\n```\nDONE", complete=True)
    assert action.command == "touch a"
    assert action.finished


def test_done_inside_the_block_is_part_of_the_command() -> None:
    assert not parse_reply("```bash\ncat <<X\nDONE\nX\n```", complete=True).finished


def test_a_command_that_the_token_limit_cut_is_not_run() -> None:
    assert parse_reply("```bash\nrm -rf /tmp/a", complete=False).command is None
    assert parse_reply("```bash\nrm -rf /tmp/a", complete=True).command == "rm -rf /tmp/a"


def test_a_block_in_another_language_is_no_command() -> None:
    assert parse_reply("```python\nprint(1)\n```", complete=True).command is None


@pytest.mark.parametrize(("code", "output"), [(0, ""), (1, "no such file\n"), (0, "x" * 1000), (2, "a\n\n" * 300)])
def test_observations_are_those_of_the_training_rows(code: int, output: str) -> None:
    assert observation(code, output) == prompt.observation(code, output)


def test_prompt_and_replies_are_those_of_the_training_rows() -> None:
    assert conversation.SYSTEM_PROMPT == prompt.SYSTEM_PROMPT
    assert conversation.FINISHED == prompt.FINISHED
    assert parse_reply(prompt.reply("ls | wc -l"), complete=True).command == "ls | wc -l"
