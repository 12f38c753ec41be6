"""The data of `examples/tooluse/company`: an invented maker of instruments, its papers, its API's records, questions.

Two halves that share no person, place or thing, one for training and one for testing. Same seed, same bytes.
"""
