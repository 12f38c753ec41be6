"""Chat templates in the public formats of model families, on a tokenizer of bytes, and a talk that uses tools."""

from pathlib import Path
from typing import Any

from support.preferences import said

MISTRAL = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}[SYSTEM_PROMPT]{{ messages[0].content }}[/SYSTEM_PROMPT]"
    "{% endif %}{% if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}"
    "{% for message in messages %}"
    "{% if message.role == 'user' %}[INST]{{ message.content }}[/INST]"
    "{% elif message.role == 'tool' %}[TOOL_RESULTS]{{ message.content }}[/TOOL_RESULTS]"
    "{% elif message.role == 'assistant' %}{{ message.content }}{% for call in message.tool_calls or [] %}"
    "[TOOL_CALLS]{{ call.function.name }}[ARGS]{{ call.function.arguments | tojson }}{% endfor %}{{ eos_token }}"
    "{% endif %}{% endfor %}"
)
"""Devstral's and the later Mistral models': no generation prompt, a call as name and arguments."""
MISTRAL_V3 = (
    "{% set asked = messages | selectattr('role', 'equalto', 'user') | list %}{{ bos_token }}"
    "{% for message in messages %}"
    "{% if message.role == 'user' %}{% if tools and message == asked[-1] %}"
    "[AVAILABLE_TOOLS] {{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}[INST] {{ message.content }}[/INST]"
    "{% elif message.role == 'tool' %}[TOOL_RESULTS] {\"content\": {{ message.content | tojson }}}[/TOOL_RESULTS]"
    "{% elif message.tool_calls %}[TOOL_CALLS] [{% for call in message.tool_calls %}"
    "{{ call.function | tojson }}{% if not loop.last %}, {% endif %}{% endfor %}]{{ eos_token }}"
    "{% else %} {{ message.content }}{{ eos_token }}{% endif %}{% endfor %}"
)
"""Mistral 7B's, version 3: the tools stand before the latest question, wherever that is."""
MIXTRAL = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}"
    "{% endif %}"
    "{% if message.role == 'user' %} [INST] {{ message.content }} [/INST]"
    "{% else %} {{ message.content }}{{ eos_token }}{% endif %}{% endfor %}"
)
"""Knows neither tools nor a system prompt."""
GRANITE = (
    "{% if messages[0].role == 'system' %}{% set system = messages[0].content %}{% set rest = messages[1:] %}"
    "{% else %}{% set system = 'You are Granite.' %}{% set rest = messages %}{% endif %}"
    "<|start_of_role|>system<|end_of_role|>{{ system }}<|end_of_text|>\n"
    "{% if tools %}<|start_of_role|>available_tools<|end_of_role|>{{ tools | tojson }}<|end_of_text|>\n{% endif %}"
    "{% for message in rest %}<|start_of_role|>{{ message.role }}<|end_of_role|>{{ message.content }}"
    "{% if message.tool_calls %}<|tool_call|>[{% for call in message.tool_calls %}{{ call.function | tojson }}"
    "{% if not loop.last %}, {% endif %}{% endfor %}]{% endif %}<|end_of_text|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start_of_role|>assistant<|end_of_role|>{% endif %}"
)
"""Granite 3's."""
SPECIALS = {
    "mistral": [
        *("[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
        *("[TOOL_CALLS]", "[ARGS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
    ],
    "granite": ["<|start_of_role|>", "<|end_of_role|>", "<|tool_call|>"],
    "chatml": ["<|im_start|>"],
    "llama": ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
}
"""Special tokens by family, beside those that begin and end a text."""
TOOLS = [{"type": "function", "function": {"name": "ls", "parameters": {"type": "object", "properties": {}}}}]
CALL = said("assistant", "", tool_calls=[{"type": "function", "function": {"name": "ls", "arguments": {"path": "/"}}}])
TALK = [said("user", "q"), CALL, said("tool", "files"), said("assistant", "a")]
TALK += [said("user", "r"), said("assistant", "b")]
"""A question answered with a tool, and another one without."""


def shipped(name: str) -> str:
    """Return the template of a family as TRL ships it for comparison with a model's own."""
    import trl

    return (Path(trl.__file__).parent / "chat_templates" / f"{name}.jinja").read_text()


def family_tokenizer(template: str, specials: list[str], *, begin: str, end: str) -> Any:
    """Return a tokenizer with one token a byte, the special tokens of a family and a template.

    Args:
        template: The chat template.
        specials: Special tokens.
        begin: Token that begins a text.
        end: Token that ends a turn.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    known = list(dict.fromkeys([begin, end, *specials]))
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate([*known, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(known)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=begin, eos_token=end, pad_token=end)
    fast.chat_template = template
    return fast
