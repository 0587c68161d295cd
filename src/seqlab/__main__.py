"""`python -m seqlab`, and `torchrun --nproc-per-node 2 -m seqlab train ...`"""

from seqlab.cli import main

main()
