"""What the checks of arguments tell those who call them."""

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from smooth_topk.targets import check_label_range


def test_labels_are_known_to_count_where_all_are_seen_in_range_and_none_is_ignored(monkeypatch):
    labels = torch.tensor([0, 8, 3])
    assert check_label_range(labels, 9)
    assert check_label_range(labels, 9, ignore_index=-100)
    assert not check_label_range(labels, 9, ignore_index=3)
    assert not check_label_range(labels, 8, ignore_index=8)
    with FakeTensorMode():
        assert not check_label_range(torch.zeros(3, dtype=torch.int64), 9)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert not check_label_range(labels, 9)
