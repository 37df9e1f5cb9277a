"""Names of algorithms as a reader of tables and figures sees them."""

NAMES = {
    "cross_entropy": "cross-entropy",
    "divide_and_conquer": "divide and conquer",
    "divide_and_conquer_autograd": "divide and conquer, autograd",
    "fused_numba": "fused (Numba)",
    "fused_triton": "fused (Triton)",
    "pivot_compiled": "pivot, compiled",
}


def algorithm_name(name: str) -> str:
    """Returns the name of an algorithm in words; a name that is not known stays, without underscores.

    Example:
        >>> algorithm_name("fused_numba"), algorithm_name("log_tree"), algorithm_name("$\\\\delta_2$")
        ('fused (Numba)', 'log tree', '$\\\\delta_2$')
    """
    return NAMES.get(name) or (name if "$" in name else name.replace("_", " "))
