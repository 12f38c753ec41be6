"""Who works on the tasks: one file an agent, the door to the model, and the wrapper that measures any agent."""
