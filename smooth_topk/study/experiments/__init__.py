"""What is run, as data: nothing in this room reads a file or computes a loss.

A `RunConfig` is one training run, and its hash is the id under which its results are recorded. The registry lists the
experiments of the paper, each with its title, its table or figure, its chapter and its runs per profile. From them
follow the expected cost of a study, and how its length falls with the number of GPUs.
"""
