"""`make bench`: what Whetstone itself costs, measured with its real processes and fake engines."""
