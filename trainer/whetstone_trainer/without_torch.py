"""Importing this module keeps torch out of its process.

Transformers imports torch for its tokenizers wherever it finds it, and they do without where it does not. It takes
seconds and 600 MiB, which a process that only renders and tokenizes would pay for nothing. A process that trains must
never import this; where torch is there already, it stays.
"""

import os
import sys
from typing import Any

_modules: dict[str, Any] = sys.modules
# What Python's import system takes for a module that is not there.
_modules.setdefault("torch", None)
# Transformers would say that there is no torch and what one cannot do then.
os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
