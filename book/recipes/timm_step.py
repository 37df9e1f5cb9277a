"""timm: MixUp hands the loss class probabilities, which it takes as cross-entropy does."""

import timm
import torch
from timm.data import Mixup

from smooth_topk import SmoothTopKLoss

torch.manual_seed(0)
network = timm.create_model("resnet10t", num_classes=20)
mixup = Mixup(mixup_alpha=0.2, cutmix_alpha=1.0, label_smoothing=0.1, num_classes=20)
criterion = SmoothTopKLoss(k=5, tau=1.0)  # in place of timm.loss.SoftTargetCrossEntropy
optimizer = timm.optim.create_optimizer_v2(network, opt="adamw", lr=1e-3)

images, labels = torch.randn(8, 3, 64, 64), torch.randint(20, (8,))
for step in range(2):
    mixed_images, probabilities = mixup(images, labels)
    loss = criterion(network(mixed_images), probabilities)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}: loss {loss.item():.3f}")
