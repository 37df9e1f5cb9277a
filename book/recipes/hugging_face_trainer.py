"""Hugging Face: the loss as `compute_loss_func`, the model chosen by top-5."""

import tempfile

import torch
from transformers import (
    Trainer,
    TrainingArguments,
    ViTConfig,
    ViTForImageClassification,
)

from smooth_topk import smooth_topk_loss, topk_accuracy


def compute_loss(outputs, labels, num_items_in_batch=None):
    # The Trainer leaves the mean over all accumulated batches to this function: it
    # counts their labels and does not divide by the number of batches itself.
    if num_items_in_batch is None:
        return smooth_topk_loss(outputs.logits, labels, k=5, tau=1.0)
    total = smooth_topk_loss(outputs.logits, labels, k=5, tau=1.0, reduction="sum")
    return total / num_items_in_batch


def compute_metrics(prediction):
    scores = torch.as_tensor(prediction.predictions)
    labels = torch.as_tensor(prediction.label_ids)
    return {"top5": topk_accuracy(scores, labels, k=5).item()}


torch.manual_seed(0)
config = ViTConfig(
    image_size=32,
    patch_size=16,
    num_labels=20,
    hidden_size=32,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=64,
)
data = [
    {"pixel_values": torch.randn(3, 32, 32), "labels": torch.tensor(index % 20)}
    for index in range(64)
]
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        num_train_epochs=2,
        per_device_train_batch_size=16,
        eval_strategy="epoch",
        save_strategy="epoch",
        load_best_model_at_end=True,
        metric_for_best_model="top5",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=ViTForImageClassification(config),
        args=arguments,
        train_dataset=data,
        eval_dataset=data,  # in your project, other images
        compute_loss_func=compute_loss,
        compute_metrics=compute_metrics,
    )
    trainer.train()
    print(f"best validation top-5: {trainer.evaluate()['eval_top5']:.1%}")
