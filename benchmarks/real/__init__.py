"""Real models, whose quality random weights cannot show: `make real` measures us on them."""
