"""The four sizes of the study, from seconds to GPU weeks.

What a profile trains is in `registry.py`: every experiment gives its runs per profile. What it changes in the chapters
is here: the parameters that differ from a chapter's own.
"""

PROFILES = {
    "smoke": "for the tests: every cell runs, its numbers mean nothing",
    "quick": "the default of scripts/study.sh: features of CIFAR-100, minutes on two cores",
    "laptop": "CIFAR-100 images and a small network, hours on a CPU",
    "paper": "the exact settings of the paper, weeks on one GPU",
}
PARAMETERS: dict[str, dict[str, dict]] = {
    "smoke": {
        "01_topk_error_and_hard_loss": {"train_size": 200, "epochs": 1, "batch_size": 50},
        "03_subsets_to_polynomials": {"counted_sizes": [8, 16, 32]},
        "04_staying_in_log_space": {"taus": [1.0, 0.01, 0.0001], "scales": [1.0, 100.0], "samples": 1},
        "05_backward_pass": {"points": 11},
        "06_pivot": {"newton_degrees": [2, 8, 12]},
        "07_speed": {"sizes": [100], "batch": 16, "rounds": 1, "sample_seconds": 0.002},
        "08_temperature_study": {"sparsity_images": 16},
        "13_use_it_in_your_project": {"train_images": 400, "epochs": 1, "batch_size": 50},
    },
    "quick": {},
    "laptop": {"08_temperature_study": {"sparsity_images": 4992}},
    "paper": {"08_temperature_study": {"sparsity_images": 44992}},
}


def check_profile(profile: str) -> None:
    """Raises ValueError in a full sentence where there is no such profile."""
    if profile not in PROFILES:
        raise ValueError(f"profile must be one of {', '.join(PROFILES)}, got profile={profile!r}.")


def chapter_parameters(profile: str) -> dict[str, dict]:
    """Returns the parameters that a profile changes, by chapter.

    Example:
        >>> chapter_parameters("smoke")["05_backward_pass"]
        {'points': 11}
    """
    check_profile(profile)
    return PARAMETERS[profile]
