"""The synthetic images: what their classes mean, and that they can be learned and hurt by noise."""

import pytest
import torch
from torch.nn import functional as F

from smooth_topk import topk_accuracy
from smooth_topk.study.data import synthetic
from smooth_topk.study.data.datasets import load_data
from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.training.models import build_model

# The constants have three decimals and come from the training part.
ROUNDED_TO = 0.002
DISTINCT = 0.15  # mean absolute difference of pixels, on the scale from 0 to 1


def test_there_are_20_superclasses_of_5_fine_classes_in_alphabetical_order():
    assert list(synthetic.CLASSES) == sorted(set(synthetic.CLASSES))
    assert torch.tensor(synthetic.CLASS_TO_SUPERCLASS).bincount().tolist() == [5] * 20


def test_a_block_of_five_consecutive_labels_is_five_superclasses():
    """So the two groupings of label noise differ, as they do in CIFAR-100."""
    blocks = torch.tensor(synthetic.CLASS_TO_SUPERCLASS).reshape(20, 5)
    assert all(len(set(block.tolist())) == 5 for block in blocks)


def test_the_images_are_the_same_whatever_was_drawn_before():
    images, labels = synthetic.synthetic_images("test")
    synthetic.synthetic_images.cache_clear()
    torch.manual_seed(5)
    torch.rand(3)
    again, labels_again = synthetic.synthetic_images("test")
    assert torch.equal(images, again)
    assert torch.equal(labels, labels_again)


def test_every_class_is_equally_frequent_and_no_test_image_is_a_training_image():
    train, labels = synthetic.synthetic_images("train")
    test, _ = synthetic.synthetic_images("test")
    assert labels.bincount().tolist() == [105] * 100
    assert train.shape[1:] == (3, 32, 32)
    assert train.dtype == torch.uint8
    assert not {image.numpy().tobytes() for image in train} & {image.numpy().tobytes() for image in test}


def test_the_normalisation_is_that_of_the_training_images():
    pixels = synthetic.synthetic_images("train")[0].float() / 255
    assert pixels.mean(dim=(0, 2, 3)).tolist() == pytest.approx(synthetic.MEAN, abs=ROUNDED_TO)
    assert pixels.std(dim=(0, 2, 3)).tolist() == pytest.approx(synthetic.STD, abs=ROUNDED_TO)


def test_fine_classes_share_their_outline_and_superclasses_do_not():
    """With the same random numbers, two hues of one figure cover the same pixels and two figures do not."""

    def draw(name):
        random = torch.Generator().manual_seed(0)
        return synthetic.draw_images(torch.tensor([synthetic.CLASSES.index(name)]), random)[0].float() / 255

    square, other_hue, cross = draw("blue plain square"), draw("red plain square"), draw("blue plain cross")
    corner = (slice(None), slice(0, 3), slice(0, 3))
    assert torch.equal(square[corner], other_hue[corner])
    assert (square - other_hue).abs().mean() > DISTINCT / 5
    assert ((square - cross).abs().amax(0) > DISTINCT).sum() > 50  # pixels of the square that the cross leaves out


def train(noise_level):
    config = RunConfig(noise_level=noise_level, train_size=2_000, epochs=6, batch_size=32)
    data = load_data(config)
    torch.manual_seed(0)
    model = build_model("small", data.num_classes)
    steps = config.epochs * data.batches_per_epoch
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=0.1, total_steps=steps)
    for epoch in range(config.epochs):
        for images, labels in data.train_batches(epoch):
            optimiser.zero_grad()
            F.cross_entropy(model(images), labels).backward()
            optimiser.step()
            schedule.step()
    model.eval()
    with torch.no_grad():
        scores = torch.cat([model(images) for images, _ in data.test_batches()])
    return [topk_accuracy(scores, data.test.labels, k=k).item() for k in (1, 5)]


@pytest.mark.slow
def test_the_small_net_learns_the_classes_and_label_noise_hurts_it():
    """12,000 images through the net: well under a minute on 2 cores."""
    clean_top1, clean_top5 = train(0.0)
    noisy_top1, noisy_top5 = train(0.8)
    assert clean_top5 >= 0.8
    assert noisy_top5 < clean_top5
    assert noisy_top1 < clean_top1 - 0.1
