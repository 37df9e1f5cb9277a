"""What every algorithm promises, and the public function in front of them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import reference_log_sigma, reference_marginals

from smooth_topk import log_symmetric_polynomials
from smooth_topk.polynomials import ALGORITHMS, without_label

FLOAT64_ROUNDING = 1e-12  # a few thousand roundings of 1e-16
FLOAT32_ROUNDING = 1e-5  # the logarithms reach 60 here, where one rounding is 4e-6
SERIES = 1e-4  # the series of Algorithm 2 stops after p terms and nothing bounds its error; 1e-5 is seen here

every_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS)
rows = st.lists(st.floats(-6, 6), min_size=1, max_size=9)


def derivatives(x, k, algorithm):
    """d log sigma_j / dx_i for j = 0..k of one row, (k + 1, n)."""
    return torch.autograd.functional.jacobian(lambda v: log_symmetric_polynomials(v, k, algorithm=algorithm), x)


@every_algorithm
@settings(max_examples=25)
@given(row=rows, data=st.data())
def test_the_polynomials_equal_the_reference(algorithm, row, data):
    k = data.draw(st.integers(1, len(row)))
    truth = torch.tensor([float(v) for v in reference_log_sigma(row, k)], dtype=torch.float64)
    exact = log_symmetric_polynomials(torch.tensor(row, dtype=torch.float64), k, algorithm=algorithm)
    torch.testing.assert_close(exact, truth, rtol=FLOAT64_ROUNDING, atol=FLOAT64_ROUNDING)


@every_algorithm
@settings(max_examples=25)
@given(row=rows, data=st.data())
def test_the_derivatives_equal_the_marginals_of_the_reference(algorithm, row, data):
    k = data.draw(st.integers(1, len(row)))
    x = torch.tensor(row, dtype=torch.float64)
    truth = torch.tensor([float(v) for v in reference_marginals(row, k)], dtype=torch.float64)
    tolerance = SERIES if algorithm == "divide_and_conquer" else FLOAT64_ROUNDING
    assert (derivatives(x, k, algorithm)[k] - truth).abs().max() < tolerance


@every_algorithm
def test_single_precision_is_accurate_while_nothing_overflows(algorithm):
    x = torch.randn(20, generator=torch.Generator().manual_seed(0)) * 4
    truth = torch.tensor([float(v) for v in reference_log_sigma(x, 5)])
    torch.testing.assert_close(
        log_symmetric_polynomials(x, 5, algorithm=algorithm), truth, rtol=0, atol=FLOAT32_ROUNDING
    )


@every_algorithm
def test_a_batch_equals_a_loop_over_its_rows_for_any_leading_dimensions(algorithm):
    x = torch.randn(2, 3, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    together = log_symmetric_polynomials(x, 3, algorithm=algorithm)
    assert together.shape == (2, 3, 4)
    for i in range(2):
        for j in range(3):
            torch.testing.assert_close(together[i, j], log_symmetric_polynomials(x[i, j], 3, algorithm=algorithm))


@every_algorithm
def test_a_permutation_of_the_elements_permutes_the_derivatives(algorithm):
    x = torch.randn(8, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    order = torch.tensor([3, 0, 7, 1, 6, 2, 5, 4])
    for j in (1, 4):
        straight, permuted = derivatives(x, 4, algorithm)[j], derivatives(x[order], 4, algorithm)[j]
        torch.testing.assert_close(permuted, straight[order], rtol=SERIES, atol=SERIES)


@every_algorithm
def test_an_element_of_minus_infinity_is_a_deleted_element(algorithm):
    x = torch.tensor([0.5, -1.0, 2.0, 0.0], dtype=torch.float64)
    padded = torch.cat([x[:2], torch.tensor([-torch.inf]), x[2:]])
    torch.testing.assert_close(
        log_symmetric_polynomials(padded, 3, algorithm=algorithm), log_symmetric_polynomials(x, 3, algorithm=algorithm)
    )
    slope = derivatives(padded, 3, algorithm)
    assert (slope[:, 2] == 0).all()
    torch.testing.assert_close(slope[:, [0, 1, 3, 4]], derivatives(x, 3, algorithm))


@every_algorithm
def test_a_polynomial_without_any_subset_is_minus_infinity_with_a_zero_derivative(algorithm):
    x = torch.tensor([0.5, -torch.inf, 2.0, -torch.inf], dtype=torch.float64)
    values = log_symmetric_polynomials(x, 4, algorithm=algorithm)
    assert values[:3].isfinite().all()
    assert (values[3:] == -torch.inf).all()
    slope = derivatives(x, 4, algorithm)
    assert slope.isfinite().all()
    assert (slope[3:] == 0).all()


@every_algorithm
def test_a_nan_stays_in_its_row(algorithm):
    x = torch.tensor([[0.0, torch.nan, 1.0], [0.0, 2.0, 1.0]], requires_grad=True)
    values = log_symmetric_polynomials(x, 2, algorithm=algorithm)
    (slope,) = torch.autograd.grad(values[:, 2].sum(), x)
    assert values[0, 1:].isnan().all()
    assert values[1].isfinite().all()
    assert slope[1].isfinite().all()


@every_algorithm
def test_gradcheck_passes(algorithm):
    x = torch.randn(2, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(3)).requires_grad_()
    assert torch.autograd.gradcheck(lambda v: log_symmetric_polynomials(v, 3, algorithm=algorithm)[:, 1:], x)


@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if name != "divide_and_conquer"])
def test_gradgradcheck_passes_where_the_backward_pass_is_differentiable(algorithm):
    x = torch.randn(2, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(4)).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda v: log_symmetric_polynomials(v, 3, algorithm=algorithm)[:, 1:], x)


@every_algorithm
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(algorithm, dtype):
    x = torch.randn(3, 30, generator=torch.Generator().manual_seed(5)).to(dtype)
    half = log_symmetric_polynomials(x, 3, algorithm=algorithm)
    assert half.dtype == dtype
    assert torch.equal(half, log_symmetric_polynomials(x.float(), 3, algorithm=algorithm).to(dtype))


@every_algorithm
def test_an_empty_batch_and_a_non_contiguous_input_work(algorithm):
    assert log_symmetric_polynomials(torch.empty(0, 4), 2, algorithm=algorithm).shape == (0, 3)
    x = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(6)).T
    torch.testing.assert_close(
        log_symmetric_polynomials(x, 2, algorithm=algorithm),
        log_symmetric_polynomials(x.contiguous(), 2, algorithm=algorithm),
    )


def test_without_label_removes_the_column_of_the_label_and_lets_derivatives_through():
    x = torch.arange(12.0).reshape(3, 4).requires_grad_()
    others = without_label(x, torch.tensor([0, 3, 1], dtype=torch.int32))
    assert others.tolist() == [[1, 2, 3], [4, 5, 6], [8, 10, 11]]
    (slope,) = torch.autograd.grad(others.sum(), x)
    assert slope.tolist() == [[0, 1, 1, 1], [1, 1, 1, 0], [1, 0, 1, 1]]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (dict(x=torch.ones(3), k=4), ValueError, "got k=4 for 3 elements"),
        (dict(x=torch.ones(3), k=0), ValueError, "got k=0"),
        (dict(x=torch.ones(3), k=2.0), TypeError, "k must be an integer, got 2.0"),
        (dict(x=torch.ones(3), k=True), TypeError, "k must be an integer, got True"),
        (dict(x=torch.ones(3, dtype=torch.int64), k=1), TypeError, "got torch.int64"),
        (dict(x=[1.0, 2.0], k=1), TypeError, "got list"),
        (dict(x=torch.tensor(1.0), k=1), ValueError, r"got shape \(\)"),
        (dict(x=torch.empty(2, 0), k=1), ValueError, r"got shape \(2, 0\)"),
        (dict(x=torch.ones(3), k=1, algorithm="magic"), ValueError, "got 'magic'"),
        (dict(x=torch.ones(3), k=1, series_order=1), ValueError, "got algorithm 'auto'"),
        (dict(x=torch.ones(3), k=1, algorithm="divide_and_conquer", series_order=-1), ValueError, "got -1"),
    ],
)
def test_bad_input_gets_a_sentence_that_names_the_value(arguments, error, message):
    with pytest.raises(error, match=message):
        log_symmetric_polynomials(arguments.pop("x"), arguments.pop("k"), **arguments)
