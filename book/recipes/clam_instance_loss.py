"""CLAM: attention chooses instances of a bag; the instance loss learns from them."""

import torch
from torch import nn

from smooth_topk.compat import SmoothTop1SVM  # was: from topk.svm import SmoothTop1SVM

INSTANCES, FEATURES, HIDDEN, CHOSEN = 100, 16, 32, 8


def make_bag(label):
    """Features of one slide; in class 1 a tenth of the patches looks different."""
    features = torch.randn(INSTANCES, FEATURES)
    features[: label * INSTANCES // 10, :4] += 2.0
    return features


class AttentionPooling(nn.Module):
    def __init__(self, classes=2):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.ReLU())
        self.value = nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.Tanh())
        self.gate = nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.Sigmoid())
        self.attention = nn.Linear(HIDDEN, 1)
        self.bag_classifier = nn.Linear(HIDDEN, classes)
        # Does this patch speak for class c, or not? Two classes for each c.
        heads = [nn.Linear(HIDDEN, 2) for _ in range(classes)]
        self.instance_classifiers = nn.ModuleList(heads)
        self.instance_loss = SmoothTop1SVM(n_classes=2)

    def forward(self, features, label=None):
        hidden = self.encoder(features)
        attention = self.attention(self.value(hidden) * self.gate(hidden)).squeeze(1)
        scores = self.bag_classifier(attention.softmax(0) @ hidden)
        if label is None:
            return scores
        # Pseudo-labels: the patches that get most attention are positive, those that
        # get least are negative. Some are wrong, which is why CLAM takes this loss.
        order = attention.argsort(descending=True)
        chosen = torch.cat([order[:CHOSEN], order[-CHOSEN:]])
        pseudo_labels = torch.arange(2).flip(0).repeat_interleave(CHOSEN)
        instance_scores = self.instance_classifiers[label](hidden[chosen])
        return scores, self.instance_loss(instance_scores, pseudo_labels)


torch.manual_seed(0)
labels = [index % 2 for index in range(120)]
bags = [make_bag(label) for label in labels]
network = AttentionPooling()
optimizer = torch.optim.Adam(network.parameters(), lr=2e-3, weight_decay=1e-5)
for epoch in range(3):
    for bag, label in zip(bags[:80], labels[:80], strict=True):
        scores, instance_loss = network(bag, label)
        bag_loss = nn.functional.cross_entropy(scores, torch.tensor(label))
        loss = 0.7 * bag_loss + 0.3 * instance_loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: bag {bag_loss:.3f}, instances {instance_loss:.3f}")

with torch.no_grad():
    answers = [network(bag).argmax().item() for bag in bags[80:]]
right = sum(a == b for a, b in zip(answers, labels[80:], strict=True))
print(f"bags classified correctly: {right / len(answers):.1%}")
