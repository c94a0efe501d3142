"""What a teacher and a reward behind an address have in common: a stranger's server is asked."""
