"""What spans and pruning are asked of: a handbook of which one sentence answers, a newsletter, and a recipe."""

QUESTION = "How many days does a customer have to return a damaged bicycle?"
ANSWER = "A customer has fourteen days to return a damaged bicycle."
BEFORE = (
    "The workshop opens at nine in the morning. Helmets hang behind the counter. Staff wash their hands after greasing chains. "
)
AFTER = " Coffee is brewed at noon. The till is counted every evening. Lamps go off when the last person leaves."
HANDBOOK = BEFORE * 8 + ANSWER + AFTER * 8  # 49 sentences
NEWSLETTER = (
    "The choir sang in the old church. " * 12 + "Tickets were sold out within an hour. " + "The organ was tuned in May. " * 12
)
RECIPE = "Peel the onions and slice them. Melt some butter in a wide pan. " * 10
TEXTS = [NEWSLETTER, RECIPE, HANDBOOK]  # in the order of a first stage that got it wrong
RIGHT = 2


def check_span(start: int, end: int) -> None:
    """What stands there in the handbook is the answer, with a sentence beside it at most."""
    assert ANSWER in HANDBOOK[start:end]
    assert end - start < 2 * len(ANSWER)


def check_pruned(text: str | None) -> None:
    """What is left of the handbook is the answer, with little beside it."""
    assert text is not None
    assert ANSWER in text
    assert len(text) < len(HANDBOOK) / 3
