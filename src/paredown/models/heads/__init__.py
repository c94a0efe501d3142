"""Heads: what of an encoder's folder says how token vectors become vectors of texts, scores or
labels, and how its texts are read."""
