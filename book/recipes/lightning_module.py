"""Lightning: the loss in a LightningModule, the checkpoint chosen by validation top-5."""

import tempfile

import lightning
import torch
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
        self.log("top5", topk_accuracy(self.network(inputs), labels, k=5), prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)  # the rate of cross-entropy: AdamW cancels the factor 1/k


torch.manual_seed(0)
data = TensorDataset(torch.randn(256, 32), torch.randint(20, (256,)))
with tempfile.TemporaryDirectory() as folder:
    keep_best = lightning.pytorch.callbacks.ModelCheckpoint(dirpath=folder, monitor="top5", mode="max")
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, callbacks=[keep_best], enable_progress_bar=False
    )
    trainer.fit(Classifier(), DataLoader(data, batch_size=64, shuffle=True), DataLoader(data, batch_size=128))
    print(f"best validation top-5: {keep_best.best_model_score:.1%}")
