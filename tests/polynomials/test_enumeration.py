"""The definition, term by term."""

import pytest
import torch

from smooth_topk.polynomials import enumeration


def test_small_polynomials_are_what_one_computes_by_hand():
    x = torch.tensor([[1.0, 2.0, 3.0, 4.0]], dtype=torch.float64).log()
    by_hand = torch.tensor([[1.0, 10.0, 35.0, 50.0, 24.0]], dtype=torch.float64)
    torch.testing.assert_close(enumeration.log_sigma(x, 4).exp(), by_hand)


def test_equal_elements_count_the_subsets():
    counts = enumeration.log_sigma(torch.zeros(1, 7, dtype=torch.float64), 7).exp()
    torch.testing.assert_close(counts, torch.tensor([[1.0, 7, 21, 35, 35, 21, 7, 1]], dtype=torch.float64))


def test_too_many_subsets_are_refused_with_their_number():
    with pytest.raises(ValueError, match="got 75287520 for n=100 and k=5"):
        enumeration.log_sigma(torch.zeros(1, 100), 5)


def test_the_largest_size_up_to_k_decides_not_k_itself():
    with pytest.raises(ValueError, match="got 155117520 for n=30 and k=30"):
        enumeration.log_sigma(torch.zeros(1, 30), 30)
