"""What tables, figures and pages call the data sets, the networks and the three scales of the study."""

DATA = {
    "synthetic": "drawn patterns",
    "cifar100_features": "CIFAR-100 features",
    "constructed_1000": "1,000 constructed classes",
    "constructed_10000": "10,000 constructed classes",
    "cifar100": "CIFAR-100 images",
    "imagenet": "ImageNet",
}
NETWORKS = {
    "linear": "linear classifier",
    "head": "head with one hidden layer",
    "small": "small network",
    "small_wide": "wider small network",
    "densenet40_12": "DenseNet 40-12",
    "densenet40_40": "DenseNet 40-40",
    "densenet40_12_bc": "DenseNet 40-12 with bottlenecks",
    "densenet40_40_bc": "DenseNet 40-40 with bottlenecks",
    "resnet18": "ResNet-18",
}
SCALES = {
    "smoke": "drawn patterns, a test that every cell runs",
    "quick": "features: a small head on built-in features of CIFAR-100",
    "laptop": "images: a small network on CIFAR-100",
    "paper": "the paper's own setting",
}


def data_name(dataset: str) -> str:
    """Returns a data set's name for readers; a name that is not known stays as it is.

    Example:
        >>> data_name("cifar100_features")
        'CIFAR-100 features'
    """
    return DATA.get(dataset, dataset)


def network_name(model: str) -> str:
    """Returns a network's name for readers; a name that is not known stays as it is.

    Example:
        >>> network_name("densenet40_12")
        'DenseNet 40-12'
    """
    return NETWORKS.get(model, model)
