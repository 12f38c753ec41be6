"""The benchmark runner: Harbor in process, trials in pods of their own, a verdict with its interval."""
