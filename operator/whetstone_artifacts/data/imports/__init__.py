"""Training data from what is there already: logs of chats, audit trails, git history, finished runs."""
