"""Pure builders of child objects: from a parsed object and settings to a dict in wire form."""
