"""Scripts that make what the package ships; nothing here is installed."""
