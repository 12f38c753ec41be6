"""Agents that users bring: their code runs in a container of its own that holds no token and no key.

The runner (`remote.py`) and the code's process (`worker.py`) talk over a socket: lines of JSON, one message each. The
runner trusts nothing that comes over it: files are copied by content, never by path, so that a link cannot make it
hand over a file of its own.
"""
