"""Sandboxes of trials as Harbor environments: a pod each."""
