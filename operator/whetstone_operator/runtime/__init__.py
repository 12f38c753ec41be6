"""The engine room of the operator: work queue, steps, conditions, Events. It knows no kind of ours by name."""
