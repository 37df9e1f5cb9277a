"""The training demo as a widget: cross-entropy and the smooth loss train in the browser, on points with wrong labels.

The training, its pictures and its numbers are in training_demo.js, which the static book uses without a kernel.
"""

import traitlets

from smooth_topk.study.chapters.explorable import Explorable, script, within

JAVASCRIPT = script("training_demo.js")
RANGES = {"noise": (0, 1), "decay": (0, 0.1), "tau": (0.01, 10), "k": (1, 3), "margin": (0, 3), "seed": (0, 2**31)}


class TrainingDemo(Explorable):
    """Two networks in the browser, one trained with cross-entropy and one with the smooth loss, on the same 150 points.

    Args:
        noise: the share of labels that are redrawn from all five classes, between 0 and 1.
        decay: weight decay of cross-entropy, between 0 and 0.1; the smooth loss has a k-th of it.
        tau: temperature, between 0.01 and 10.
        k: size of the prediction, 1 to 3.
        margin: the paper's α, between 0 and 3.
        seed: of the points, the noise and the hidden units.

    Example:
        >>> demo = TrainingDemo(noise=0.4, k=3)
        >>> demo.decay = 0.01  # every open view starts again with this weight decay
    """

    MARK = "data-training-demo"
    _esm = JAVASCRIPT
    noise = traitlets.Float(0.6).tag(sync=True)
    decay = traitlets.Float(0.0).tag(sync=True)
    tau = traitlets.Float(1.0).tag(sync=True)
    k = traitlets.Int(2).tag(sync=True)
    margin = traitlets.Float(1.0).tag(sync=True)
    seed = traitlets.Int(1).tag(sync=True)

    @traitlets.validate(*RANGES)
    def _check_range(self, proposal):
        return within(proposal.trait.name, proposal.value, RANGES[proposal.trait.name])
