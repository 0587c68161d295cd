"""`seqlab doctor`: what this machine has, and whether seqlab can be trusted on it."""
