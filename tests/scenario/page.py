"""Tables that a run puts into a page of the documentation."""


def replace(path, begin, end, lines):
    """Puts lines between two marks of a page."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    before, _, rest = text.partition(begin)
    after = rest.partition(end)[2]
    with open(path, "w", encoding="utf-8") as file:
        file.write(before + "\n".join([begin, "", *lines, "", end]) + after)
