"""What the study costs before it runs: time, disk and memory, computed from the configurations."""

import pandas as pd
import torch

from smooth_topk.study import configs
from smooth_topk.study.checkpoints import KEPT
from smooth_topk.study.costs import SPLITS, expected_seconds
from smooth_topk.study.models import build_model

EXPERIMENTS = {
    "figure_2_temperature": "Figure 2, Table 6: temperature",
    "temperature_annealing": "Appendix D.1.3: annealing",
    "table_1_noise": "Tables 1 and 9: noisy labels",
    "table_2_small_data": "Table 2: small training sets",
    "table_7_margin_top1": "Table 7: margin, k = 1",
    "table_8_margin_top5": "Table 8: margin, k = 5",
}
NETWORKS = {"small": 100, "densenet40_12": 100, "densenet40_40_bc": 100, "resnet18": 1000}  # with their classes


def cost_table(profile: str = "paper", *, device: str = "gpu") -> pd.DataFrame:
    """The expected cost of every experiment, `costs.ASSUMPTIONS[device]` given; a run counts once, where it is first.

    Returns:
        By experiment, and for the total: data, network, runs, epochs a run, hours of the longest run, hours of all.
    """
    seen: set[str] = set()
    rows = {}
    for name, title in EXPERIMENTS.items():
        runs = {run.run_id: run for run in configs.EXPERIMENTS[name](profile) if run.run_id not in seen}
        seen |= set(runs)
        hours = [expected_seconds(run, device) / 3600 for run in runs.values()]
        first = next(iter(runs.values()))
        fixed = {"data": first.dataset, "network": first.model, "runs": len(runs), "epochs": first.epochs}
        rows[title] = {**fixed, "longest run": max(hours), "all runs": sum(hours)}
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("experiment")
    whole = {"data": "", "network": "", "runs": table["runs"].sum(), "epochs": ""}
    whole |= {"longest run": table["longest run"].max(), "all runs": table["all runs"].sum()}
    return pd.concat([table, pd.DataFrame(whole, index=["all"])]).rename_axis("experiment")


def disk_table() -> pd.DataFrame:
    """Returns by network its parameters in millions; in MB a checkpoint, and the room that an unfinished run needs."""
    rows = {}
    for name, classes in NETWORKS.items():
        with torch.device("meta"):
            network = build_model(name, classes)
        size = checkpoint_bytes(network) / 1e6
        parameters = sum(parameter.numel() for parameter in network.parameters()) / 1e6
        # A new checkpoint is whole before an old one goes.
        rows[name] = {"parameters (millions)": parameters, "checkpoint": size, "room for one run": (KEPT + 1) * size}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("network")


def checkpoint_bytes(network: torch.nn.Module) -> int:
    """Returns the size of the tensors in a checkpoint: the weights, the best weights so far, and SGD's momentum."""
    weights = sum(value.nbytes for value in network.state_dict().values())
    return 2 * weights + sum(parameter.nbytes for parameter in network.parameters())


def image_bytes(dataset: str) -> int:
    """Returns the bytes of all images of CIFAR-100 or of the built-in data, 32 x 32 x 3 each, held in memory."""
    if dataset not in ("cifar100", "synthetic"):
        raise ValueError(f"The images of cifar100 and of synthetic are held in memory, got dataset={dataset!r}.")
    return sum(SPLITS[dataset]) * 3 * 32 * 32
