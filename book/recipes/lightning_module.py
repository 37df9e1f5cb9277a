"""Lightning: the loss in a LightningModule, the checkpoint chosen by top-5."""

import tempfile

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset

from smooth_topk import smooth_topk_loss, topk_accuracy


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.network = torch.nn.Linear(32, 20)

    def training_step(self, batch, batch_index):
        inputs, labels = batch
        return smooth_topk_loss(self.network(inputs), labels, k=5, tau=1.0)

    def validation_step(self, batch, batch_index):
        inputs, labels = batch
        accuracy = topk_accuracy(self.network(inputs), labels, k=5)
        self.log("top5", accuracy, prog_bar=True)

    def configure_optimizers(self):
        # AdamW divides the gradient by its own size:
        # keep the rate and the decay of cross-entropy.
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


torch.manual_seed(0)
data = TensorDataset(torch.randn(256, 32), torch.randint(20, (256,)))
training = DataLoader(data, batch_size=64, shuffle=True)
validation = DataLoader(data, batch_size=128)  # in your project, other images
with tempfile.TemporaryDirectory() as folder:
    keep_best = ModelCheckpoint(dirpath=folder, monitor="top5", mode="max")
    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        callbacks=[keep_best],
        enable_progress_bar=False,
    )
    trainer.fit(Classifier(), training, validation)
    print(f"best validation top-5: {keep_best.best_model_score:.1%}")
