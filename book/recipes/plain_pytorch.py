"""Plain PyTorch: an ordinary loop that keeps the weights with the best top-5."""

import copy

import torch
from torch.utils.data import DataLoader, TensorDataset

from smooth_topk import SmoothTopKLoss, topk_accuracy

torch.manual_seed(0)
inputs, labels = torch.randn(512, 32), torch.randint(20, (512,))
training_set = TensorDataset(inputs[:384], labels[:384])
loader = DataLoader(training_set, batch_size=64, shuffle=True)

network = torch.nn.Sequential(
    torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 20)
)
criterion = SmoothTopKLoss(k=5, tau=1.0)
# For SGD: k times the rate 0.1 of cross-entropy, and its decay 1e-4 divided by k.
optimizer = torch.optim.SGD(
    network.parameters(), lr=0.5, momentum=0.9, weight_decay=2e-5
)

best, best_weights = 0.0, None
for epoch in range(3):
    network.train()
    for batch, batch_labels in loader:
        optimizer.zero_grad()
        loss = criterion(network(batch), batch_labels)
        loss.backward()
        # The gradient is about k times smaller than that of cross-entropy.
        torch.nn.utils.clip_grad_norm_(network.parameters(), max_norm=1.0 / criterion.k)
        optimizer.step()
    network.eval()
    with torch.no_grad():
        accuracy = topk_accuracy(network(inputs[384:]), labels[384:], k=5).item()
    if accuracy > best:
        best, best_weights = accuracy, copy.deepcopy(network.state_dict())
    print(f"epoch {epoch}: loss {loss.item():.3f}, validation top-5 {accuracy:.1%}")
network.load_state_dict(best_weights)
