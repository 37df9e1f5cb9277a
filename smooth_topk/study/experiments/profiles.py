"""The four sizes of the study, from seconds to GPU weeks, in one place.

What a profile trains is in `registry.py`: every experiment gives its runs per profile. What it changes in the chapters
is here: the parameters that differ from a chapter's own, the data sets that a chapter needs, and the minutes that it is
expected to take on two cores (on one GPU for "paper") until it has run once and its own time is known.
"""

PROFILES = {
    "smoke": "for the tests: every cell runs, its numbers mean nothing",
    "quick": "the default of scripts/study.sh: features of CIFAR-100, minutes on two cores",
    "laptop": "CIFAR-100 images and a small network, hours on a CPU",
    "paper": "the exact settings of the paper, weeks on one GPU",
}
RECORDING = ("laptop", "paper")  # profiles whose results are part of the project, in book/results
MINUTES = {  # of the chapters that train nothing, or the same in every profile
    "00_start_here": 0.2,
    "01_topk_error_and_hard_loss": 0.8,
    "02_smoothing_with_tau": 0.4,
    "03_subsets_to_polynomials": 0.2,
    "04_staying_in_log_space": 0.3,
    "05_backward_pass": 0.3,
    "06_pivot": 0.3,
    "07_speed": 0.6,
    "11_topk_probabilities": 0.3,
    "13_use_it_in_your_project": 1,
    "14_paper_versus_ours": 0.3,
    "15_the_family": 0.5,
}
CHANGES: dict[str, dict[str, dict]] = {
    "smoke": {
        "01_topk_error_and_hard_loss": {"parameters": {"train_size": 200, "epochs": 1, "batch_size": 50}},
        "03_subsets_to_polynomials": {"parameters": {"counted_sizes": [8, 16, 32]}},
        "04_staying_in_log_space": {
            "parameters": {"taus": [1.0, 0.01, 0.0001], "scales": [1.0, 100.0], "samples": 1},
        },
        "05_backward_pass": {"parameters": {"points": 11}},
        "06_pivot": {"parameters": {"newton_degrees": [2, 8, 12]}},
        "07_speed": {"parameters": {"sizes": [100], "batch": 16, "rounds": 1, "sample_seconds": 0.002}},
        "08_temperature_study": {"minutes": 0.5, "parameters": {"sparsity_images": 16}},
        "09_noisy_labels_study": {"minutes": 0.5},
        "10_small_data_study": {"minutes": 0.4},
        "12_margin_study": {"minutes": 0.4},
        "13_use_it_in_your_project": {
            "minutes": 0.3,
            "parameters": {"train_images": 400, "epochs": 1, "batch_size": 50},
        },
    },
    "quick": {
        "08_temperature_study": {"minutes": 1.5},
        "09_noisy_labels_study": {"minutes": 3.5},
        "10_small_data_study": {"minutes": 2.5},
        "12_margin_study": {"minutes": 1.5},
    },
    "laptop": {
        "08_temperature_study": {"minutes": 24, "needs": ["cifar100"], "parameters": {"sparsity_images": 4992}},
        "09_noisy_labels_study": {"minutes": 90, "needs": ["cifar100"]},
        "10_small_data_study": {"minutes": 20, "needs": ["cifar100"]},
        "12_margin_study": {"minutes": 10, "needs": ["cifar100"]},
    },
    "paper": {
        "08_temperature_study": {"minutes": 1500, "needs": ["cifar100"], "parameters": {"sparsity_images": 44992}},
        "09_noisy_labels_study": {"minutes": 37000, "needs": ["cifar100"]},
        "10_small_data_study": {"minutes": 17400, "needs": ["imagenet"]},
        "12_margin_study": {"minutes": 17500, "needs": ["imagenet"]},
    },
}


def check_profile(profile: str) -> None:
    """Raises ValueError in a full sentence where there is no such profile."""
    if profile not in PROFILES:
        raise ValueError(f"profile must be one of {', '.join(PROFILES)}, got profile={profile!r}.")


def chapter_settings(profile: str) -> dict[str, dict]:
    """Returns what a profile says of each chapter: minutes, needs (data sets) and parameters, as far as it says it.

    Example:
        >>> chapter_settings("smoke")["05_backward_pass"]
        {'minutes': 0.3, 'parameters': {'points': 11}}
    """
    check_profile(profile)
    changes = CHANGES[profile]
    names = dict.fromkeys((*MINUTES, *changes))
    return {name: ({"minutes": MINUTES[name]} if name in MINUTES else {}) | changes.get(name, {}) for name in names}
