"""The contract that all parts of Whetstone share: resource models, vocabulary, artifact formats, wire protocols.

Nothing here talks to a network or a disk. Operator, server, trainer and agent import this package and never each other.
"""
