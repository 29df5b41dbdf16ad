"""items.py - the shipped model's held-out items in the form that the tasks in this folder need: the items of one kind, and texts.

The YAML files name the functions. They select by an item's own number, so that the order of the file does not matter. Know nothing of
servers. Read next: tiny_generate.yaml.
"""


def number(item):
    return int(item["id"][-3:])


def compare(dataset):
    return dataset.filter(lambda item: item["task"] == "compare" and number(item) < 16)


def count(dataset):
    return dataset.filter(lambda item: item["task"] == "count" and number(item) < 8)


def three_of_each(dataset):
    return dataset.filter(lambda item: number(item) % 16 == 0)


def texts(dataset):
    """Items of four kinds as whole texts, prompt and answer."""
    return dataset.filter(lambda item: item["task"] in ("words", "date", "sort", "roman") and number(item) < 3)


def text(item):
    return item["prompt"] + item["answer"]
