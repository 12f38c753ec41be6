"""Artifacts on disk: digest, verify, preflight, publish, adopt. Shared by sidecar, trainer and benchmark runner."""
