"""`make demo`: the whole loop on a real cluster, from an empty namespace to a promoted adapter."""
