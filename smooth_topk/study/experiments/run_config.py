"""One training run as a frozen record of literals, and the identity under which its results are kept."""

import hashlib
import json
import math
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from smooth_topk.study.losses import FAMILY

DATASETS = ("synthetic", "cifar100_features", "constructed_1000", "constructed_10000", "cifar100", "imagenet")
FEATURES = {"cifar100_features": 128, "constructed_1000": 64, "constructed_10000": 64}  # numbers per sample, no images
FEATURE_MODELS = ("linear", "head")
MODELS = (
    *FEATURE_MODELS,
    "small",
    "small_wide",
    "densenet40_12",
    "densenet40_40",
    "densenet40_12_bc",
    "densenet40_40_bc",
    "resnet18",
)
FIELDS_OF_LOSSES = ("k", "tau", "margin")
RETIRED: dict[str, tuple[str, ...]] = {"topk_transition": ("k",)}  # published, and no longer computed
# By loss: the fields that it reads, and its other parameters with their defaults, which `loss_options` may hold.
LOSS_FIELDS: dict[str, tuple[str, ...]] = RETIRED | {
    name: tuple(n for n in loss.hyper_parameters if n in FIELDS_OF_LOSSES) for name, loss in FAMILY.items()
}
LOSS_FIELDS["smooth"] += ("tau_final",)
LOSS_OPTIONS: dict[str, dict[str, float]] = {
    name: {n: float(value) for n, value in loss.hyper_parameters.items() if n not in FIELDS_OF_LOSSES}
    for name, loss in FAMILY.items()
}
CHOICES = {
    "dataset": DATASETS,
    "noise_grouping": ("superclass", "index_blocks"),
    "validation_labels": ("clean", "noisy"),
    "model": MODELS,
    "loss": tuple(LOSS_FIELDS),
    "schedule": ("steps", "one_cycle", "cosine"),
    "chosen_by": ("top1", "top3", "top5", "top10", "top20"),
    "precision": ("32-true", "16-mixed", "bf16-mixed", "bf16-true", "64-true"),
}
REALS = ("noise_level", "tau", "margin", "learning_rate", "momentum", "weight_decay", "imbalance")
INTEGERS = ("k", "epochs", "batch_size", "seed", "cycles", "split_seed")
LARGEST = 2**63
SWITCHES = ("nesterov", "augment", "ten_crop")
ADDED_LATER = (
    "chosen_by",
    "classes",
    "cycles",
    "loss_options",
    "split_seed",
    "imbalance",
)  # fields that recorded runs do not have: at their default they are no part of the run_id


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides the result of one run, and nothing else: no path, no device, no number of processes.

    Example:
        >>> config = RunConfig(loss="smooth", tau=0.2)
        >>> RunConfig.from_dict(config.to_dict()) == config
        True
        >>> RunConfig(tau=0.2).run_id == RunConfig().run_id  # cross-entropy has no tau
        True
    """

    dataset: str = "synthetic"
    train_size: int | float | None = None  # None: all; a float: that share; an int: that many images; balanced, nested
    noise_level: float = 0.0  # the paper's p: share of the training labels redrawn
    noise_grouping: str = "superclass"  # as in section 5.1, or "index_blocks" as in the authors' public code
    validation_labels: str = "clean"
    model: str = "small"
    loss: str = "cross_entropy"
    k: int = 5
    tau: float = 1.0
    margin: float = 1.0  # the paper's alpha
    tau_final: float | None = None  # tau goes geometrically from tau to tau_final over the epochs (appendix D.1.3)
    epochs: int = 8
    batch_size: int = 64  # the global batch, whatever the number of processes
    learning_rate: float = 0.1  # the initial rate of "steps", the highest rate of the others
    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 1e-4
    schedule: str = "one_cycle"
    milestones: tuple[int, ...] = ()  # epochs, counted from 0, at whose start the rate is divided by ten
    augment: bool = True
    ten_crop: bool = False
    precision: str = "32-true"  # in the words of lightning-fabric
    seed: int = 0
    chosen_by: str = "top5"  # the validation accuracy whose best epoch is tested
    classes: int | None = None  # None: all; else the classes of the first superclasses, that many
    loss_options: tuple[tuple[str, float], ...] = ()  # parameters of the loss that are no fields; a dict is taken, too
    split_seed: int = 0  # draws the images that are held out for validation, and those of a subset
    imbalance: float = 1.0  # a long tail: the largest class has so many times the images of the smallest
    cycles: int = 1  # equal parts of a "one_cycle" run: after the first, fine-tuning in which alone tau falls

    def __post_init__(self):
        # 1 and 1.0, [150] and (150,) are the same run and must give the same run_id.
        for name in REALS:
            object.__setattr__(self, name, _real(name, getattr(self, name)))
        if self.tau_final is not None:
            object.__setattr__(self, "tau_final", _real("tau_final", self.tau_final))
        if not isinstance(self.milestones, tuple | list):
            raise ValueError(f"milestones must be a list of epochs, got milestones={self.milestones!r}.")
        object.__setattr__(self, "milestones", tuple(self.milestones))
        object.__setattr__(self, "loss_options", _loss_options(self.loss_options))
        _check_types(self)
        _check_values(self)
        _check_combinations(self)

    @property
    def run_id(self) -> str:
        """The first 12 hexadecimal digits of the SHA-256 of the canonical configuration."""
        config = self.canonical()
        values = config.to_dict()
        for field in fields(self):
            if field.name in ADDED_LATER and getattr(config, field.name) == field.default:
                del values[field.name]
        text = json.dumps(values, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def canonical(self) -> "RunConfig":
        """Returns the same run with every field that cannot matter at its default."""
        unused = [name for name in ("k", "tau", "margin", "tau_final") if name not in LOSS_FIELDS[self.loss]]
        if self.tau_final == self.tau:
            unused += ["tau_final"]
        if self.noise_level == 0:
            unused += ["noise_grouping", "validation_labels"]
        if self.dataset in FEATURES:
            unused += ["augment"]  # features have no flips and crops
        if isinstance(self.train_size, float) and self.train_size == 1:
            unused += ["train_size"]
        known = LOSS_OPTIONS.get(self.loss, {})
        options = tuple((name, value) for name, value in self.loss_options if value != known[name])
        defaults: dict[str, Any] = {field.name: field.default for field in fields(self) if field.name in unused}
        return replace(self, **defaults | {"loss_options": options})

    def to_dict(self) -> dict:
        """Returns the fields as JSON knows them; milestones and options of the loss become lists."""
        return asdict(self) | {
            "milestones": list(self.milestones),
            "loss_options": [list(o) for o in self.loss_options],
        }

    @classmethod
    def from_dict(cls, values: dict) -> "RunConfig":
        """Reads what `to_dict` wrote; a field that is missing takes its default, an unknown one is an error."""
        if not isinstance(values, dict):
            raise ValueError(f"A RunConfig is read from an object of names and values, got {values!r}.")
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ValueError(
                f"A RunConfig has no field {', '.join(unknown)}; its fields are {', '.join(sorted(known))}."
            )
        return cls(**values)

    @property
    def loss_name(self) -> str:
        """The loss in the notation of the paper, such as CE or L_{5,0.1}."""
        if self.loss == "cross_entropy":
            return "CE"
        if self.loss not in ("smooth", "hard"):
            return self.loss.replace("_", " ") + (f" τ={self.tau:g}" if "tau" in LOSS_FIELDS[self.loss] else "")
        margin = "" if self.margin == 1 else f" margin {self.margin:g}"
        annealed = "" if self.tau_final is None else f"→{self.tau_final:g}"
        return (f"l_{self.k}" if self.loss == "hard" else f"L_{{{self.k},{self.tau:g}{annealed}}}") + margin

    def describe(self) -> str:
        """Returns the run in one line.

        Example:
            >>> RunConfig(loss="smooth", noise_level=0.4, train_size=2000).describe()
            'synthetic (2000 images, noise 0.4 superclass) small L_{5,1} 8 epochs seed 0'
        """
        size = {int: f"{self.train_size} images", float: f"{100 * (self.train_size or 0):g} %"}.get(
            type(self.train_size)
        )
        noise = f"noise {self.noise_level:g} {self.noise_grouping}" if self.noise_level else None
        classes = f"{self.classes} classes" if self.classes else None
        details = ", ".join(part for part in (classes, size, noise) if part)
        data = f"{self.dataset} ({details})" if details else self.dataset
        return f"{data} {self.model} {self.loss_name} {self.epochs} epochs seed {self.seed}"


def _real(name: str, value) -> float:
    try:
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
    except OverflowError:  # an integer of hundreds of digits
        pass
    raise ValueError(f"{name} must be a finite number, got {name}={value!r}.")


def _loss_options(options) -> tuple[tuple[str, float], ...]:
    """Returns the options in the order of their names; a dict and lists of pairs are the same options."""
    try:
        pairs = dict(options)
    except (TypeError, ValueError):
        raise ValueError(f"loss_options must be pairs of a name and a number, got {options!r}.") from None
    return tuple((name, _real(f"loss_options[{name}]", pairs[name])) for name in sorted(pairs, key=str))


def _check_types(config: RunConfig) -> None:
    for name, choices in CHOICES.items():
        if getattr(config, name) not in choices:
            raise ValueError(f"{name} must be one of {', '.join(choices)}, got {name}={getattr(config, name)!r}.")
    for name in INTEGERS:
        if type(getattr(config, name)) is not int:
            raise ValueError(f"{name} must be an integer, got {name}={getattr(config, name)!r}.")
    for name in SWITCHES:
        if type(getattr(config, name)) is not bool:
            raise ValueError(f"{name} must be True or False, got {name}={getattr(config, name)!r}.")
    if not all(type(epoch) is int for epoch in config.milestones):
        raise ValueError(f"milestones must be epochs, that is integers, got milestones={config.milestones!r}.")
    if config.classes is not None and type(config.classes) is not int:
        raise ValueError(f"classes must be None or an integer, got classes={config.classes!r}.")
    if config.train_size is not None and type(config.train_size) not in (int, float):
        raise ValueError(f"train_size must be None, a float or an int, got train_size={config.train_size!r}.")


def _check_values(config: RunConfig) -> None:
    for name in (*INTEGERS, "classes", "train_size"):  # what a table of records has no room for
        if isinstance(value := getattr(config, name), int) and value >= LARGEST:
            raise ValueError(f"{name} must be below {LARGEST}, got {name}={value}.")
    share = isinstance(config.train_size, float)
    rules = {
        "noise_level": (0 <= config.noise_level <= 1, "between 0 and 1"),
        "k": (config.k >= 1, "at least 1"),
        "tau": (config.tau > 0, "positive; the limit tau = 0 is loss='hard'"),
        "tau_final": (config.tau_final is None or config.tau_final > 0, "None or positive"),
        "margin": (config.margin >= 0, "zero or positive"),
        "epochs": (config.epochs >= 1, "at least 1"),
        "batch_size": (config.batch_size >= 1, "at least 1"),
        "learning_rate": (config.learning_rate > 0, "positive"),
        "momentum": (0 <= config.momentum < 1, "at least 0 and below 1"),
        "weight_decay": (config.weight_decay >= 0, "zero or positive"),
        "seed": (0 <= config.seed < 2**32, "between 0 and 4294967295"),
        "train_size": (
            config.train_size is None or 0 < config.train_size <= (1 if share else math.inf),
            "None, a share above 0.0 and at most 1.0, or a number of images of at least 1",
        ),
        "split_seed": (0 <= config.split_seed < 2**32, "between 0 and 4294967295"),
        "imbalance": (config.imbalance >= 1, "at least 1"),
        "classes": (config.classes is None or config.classes > config.k, "None or more than k"),
        "cycles": (config.cycles >= 1 and config.epochs % config.cycles == 0, "a divisor of the epochs"),
        "milestones": (
            all(a < b for a, b in zip((0, *config.milestones), config.milestones, strict=False)),
            "increasing epochs after epoch 0",
        ),
    }
    for name, (fulfilled, rule) in rules.items():
        if not fulfilled:
            raise ValueError(f"{name} must be {rule}, got {name}={getattr(config, name)!r}.")


def _check_combinations(config: RunConfig) -> None:
    if config.milestones and config.schedule != "steps":
        raise ValueError(
            f"milestones need schedule='steps', got milestones={config.milestones}, schedule={config.schedule!r}."
        )
    if (config.model in FEATURE_MODELS) != (config.dataset in FEATURES):
        raise ValueError(
            f"The models {', '.join(FEATURE_MODELS)} and the data sets {', '.join(FEATURES)} belong together, "
            f"got model={config.model!r}, dataset={config.dataset!r}."
        )
    if unknown := {name for name, _ in config.loss_options} - set(LOSS_OPTIONS.get(config.loss, {})):
        known = ", ".join(LOSS_OPTIONS.get(config.loss, {})) or "none"
        raise ValueError(f"The loss {config.loss} has the options {known}, got {', '.join(sorted(unknown))}.")
    if config.cycles > 1 and config.schedule != "one_cycle":
        raise ValueError(f"cycles need schedule='one_cycle', got cycles={config.cycles}, schedule={config.schedule!r}.")
    if config.nesterov and config.momentum == 0:
        raise ValueError("nesterov=True needs a momentum above 0, got momentum=0.0.")
    if config.ten_crop and config.dataset != "imagenet":
        raise ValueError(f"ten_crop=True needs images larger than the crop, as in imagenet, got {config.dataset!r}.")
    if config.noise_level and config.dataset == "imagenet" and config.noise_grouping == "superclass":
        raise ValueError("ImageNet has no superclasses here: label noise on it needs noise_grouping='index_blocks'.")
