"""How a trial ends when it is not its agent that ended it. Harbor's results name these classes."""


class ModelUnavailableError(Exception):
    """The model server did not answer: the trial is void and is tried again."""


class ModelSlowError(Exception):
    """The model server answered, far more slowly than usual, until the trial's time was over: the trial is void."""


class ModelRefusedError(Exception):
    """The model server refused a request for a reason that is not the model's doing: the trial is void."""


class TargetChangedError(Exception):
    """Another version than the measured one answered: the whole run is worth nothing."""


class BudgetExceededError(Exception):
    """The trial used up its budget: the agent's own end, and scored as such."""


class RunBudgetExceededError(Exception):
    """The run used up its budget: it ends, and its finished trials are kept."""


class AgentFailedError(Exception):
    """A user's agent raised, or its process ended: the agent's own end, and scored as such."""


class AgentHostLostError(Exception):
    """The container of a user's agent does not answer: the trial is void and is tried again."""
