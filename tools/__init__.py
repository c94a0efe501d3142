"""Programs of the repository that nothing installs: what makes what the package ships, fuzzers."""
