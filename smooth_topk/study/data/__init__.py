"""Images and labels: a `RunConfig` goes in, the batches of its training, validation and test splits come out.

Four sources have the same form: features that come with the project, images drawn on the spot, CIFAR-100 and ImageNet.
`datasets` makes splits, label noise and batches of them, and `prepare` puts downloaded data where they are found.
"""
