"""What the stand-in for a model answers, by the conversation."""

import json
import re

type Messages = list[dict[str, str]]


def typing(messages: Messages) -> str:
    """Answer `terminus-2` in its JSON: type the command that creates the file, look until it ran, then say twice that
    it is done."""
    found = re.search(r"Create the file (\S+)\.", messages[0]["content"])
    if found is None:
        return "OK"
    seen = any(re.search(r"^made-it$", message["content"], re.MULTILINE) for message in messages[1:])
    keys = {"keystrokes": "", "duration": 0.3}
    if len(messages) == 1:
        keys["keystrokes"] = f"touch {found[1]}; echo made-it\n"
    return json.dumps({"analysis": "a", "plan": "p", "commands": [] if seen else [keys], "task_complete": seen})


def endless(messages: Messages) -> str:
    """Ask for one more harmless command, for ever."""
    return f"```bash\necho {len(messages)}\n```"


def endless_typing(messages: Messages) -> str:
    """The same in the JSON of `terminus-2`."""
    keys = [{"keystrokes": f"echo {len(messages)}\n", "duration": 0.1}]
    return json.dumps({"analysis": "a", "plan": "p", "commands": keys, "task_complete": False})
