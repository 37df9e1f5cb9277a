"""The tau explorer as a widget: tau, k, margin, scores and label go both ways between Python and the browser.

The drawing and the mathematics are in tau_explorer.js, which the static book uses without a kernel.
"""

import math

import traitlets

from smooth_topk.study.chapters.explorable import Explorable, script, within

JAVASCRIPT = script("tau_explorer.js")
TAU_RANGE = (1e-4, 1e2)
MARGIN_RANGE = (0.0, 3.0)
CLASSES_RANGE = (3, 40)


class TauExplorer(Explorable):
    """Scores, loss, gradient and top-k probabilities of one sample, redrawn as tau, k, the margin or a score moves.

    Args:
        tau: temperature, between 1e-4 and 100.
        k: size of the prediction, 1 <= k <= n - 1.
        margin: the paper's α, between 0 and 3.
        scores: n finite numbers, 3 <= n <= 40.
        label: index of the true class.
        names: a name for each class; their indices where it is empty.

    Example:
        >>> explorer = TauExplorer(tau=0.1, k=2, scores=[2.0, 1.0, 0.5, -1.0], label=2)
        >>> explorer.tau = 10.0  # every open view follows; reading explorer.tau gives what the slider shows
    """

    MARK = "data-tau-explorer"
    _esm = JAVASCRIPT
    tau = traitlets.Float(1.0).tag(sync=True)
    k = traitlets.Int(5).tag(sync=True)
    margin = traitlets.Float(1.0).tag(sync=True)
    scores = traitlets.List(traitlets.Float(), [3.2, 6.1, -1.4, 4.5, 0.6, 2.4, 5.0, -2.6, 1.5, -0.5]).tag(sync=True)
    label = traitlets.Int(8).tag(sync=True)
    names = traitlets.List(traitlets.Unicode()).tag(sync=True)

    @traitlets.validate("tau")
    def _check_tau(self, proposal):
        return within("tau", proposal.value, TAU_RANGE)

    @traitlets.validate("margin")
    def _check_margin(self, proposal):
        return within("margin", proposal.value, MARGIN_RANGE)

    @traitlets.validate("scores")
    def _check_scores(self, proposal):
        scores = proposal.value
        within("the number of scores", len(scores), CLASSES_RANGE)
        wrong = next((score for score in scores if not math.isfinite(score)), None)
        if wrong is not None:
            raise ValueError(f"scores must be finite numbers, got {wrong}.")
        return scores

    # Validators run once all values of a constructor or of hold_trait_notifications are set: k and the label are then
    # compared with the scores that came with them.
    @traitlets.validate("k")
    def _check_k(self, proposal):
        classes = len(self.scores)
        if not 1 <= proposal.value <= classes - 1:
            received = f"k={proposal.value} for {classes} classes"
            raise ValueError(f"k must be between 1 and the number of classes minus one, got {received}.")
        return proposal.value

    @traitlets.validate("label")
    def _check_label(self, proposal):
        if not 0 <= proposal.value < len(self.scores):
            raise ValueError(
                f"label must be the index of a class, got {proposal.value} for {len(self.scores)} classes."
            )
        return proposal.value
