"""Training data on disk: its forms, its checks, and what makes more of it."""
