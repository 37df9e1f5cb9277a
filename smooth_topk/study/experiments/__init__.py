"""What is run, as data: nothing here reads a file or trains.

A `RunConfig` is one training run, and its hash is the id under which its results are recorded. The registry lists the
experiments of the paper, each with its title, its table or figure, its chapter and its runs per profile; the protocol
is how losses are compared. From both follows the expected cost of a study.
"""
