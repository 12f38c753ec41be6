"""Harbor environment that runs each trial in a pod of its own.

Import path for Harbor: `whetstone_agent.environment:PodEnvironment`.
"""

from whetstone_agent.environment.pod import PodEnvironment

__all__ = ["PodEnvironment"]
