"""timm: MixUp hands the loss class probabilities; validation has plain labels."""

import timm
import torch
from timm.data import Mixup
from timm.optim import create_optimizer_v2

from smooth_topk import SmoothTopKLoss, topk_accuracy

torch.manual_seed(0)
network = timm.create_model("resnet10t", num_classes=20)
# Without label smoothing at first: the loss already tolerates four other classes.
mixup = Mixup(mixup_alpha=0.2, cutmix_alpha=1.0, label_smoothing=0.0, num_classes=20)
criterion = SmoothTopKLoss(k=5, tau=1.0)  # in place of timm.loss.SoftTargetCrossEntropy
optimizer = create_optimizer_v2(network, opt="adamw", lr=1e-3, weight_decay=0.05)

network.train()
for step in range(2):
    images = torch.randn(8, 3, 64, 64)  # an even number: MixUp pairs the images
    labels = torch.randint(20, (8,))
    images, probabilities = mixup(images, labels)  # changes the images in place
    loss = criterion(network(images), probabilities)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}: loss {loss.item():.3f}")

network.eval()
images, labels = torch.randn(16, 3, 64, 64), torch.randint(20, (16,))
with torch.no_grad():
    accuracy = topk_accuracy(network(images), labels, k=5).item()
print(f"validation top-5 {accuracy:.1%}")
