"""The child's entry. Apart from its module, so that what it sends has a name the parent knows."""

from benchmarks.peers.child import main

main()
