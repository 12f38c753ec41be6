"""One reconciler a kind, each a list of small steps."""
