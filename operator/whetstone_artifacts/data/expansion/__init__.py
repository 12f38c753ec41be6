"""More rows of training data from a few human ones, by a model that teaches."""
