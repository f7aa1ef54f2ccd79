"""The list of cases and their execution. A case is a function with a number, a name and a group;
what it expects, and why where the specification leaves a choice, is in its text."""

import time
import traceback

CASES = {}


class Case:
    def __init__(self, number, name, group, function, remarks):
        self.number, self.name, self.group, self.function = number, name, group, function
        self.changed, self.short, self.missing = remarks


def case(number, name, group, changed=None, short=None, missing=None):
    """Adds a case, or a part of one that needs another configuration (the same number in another
    group). `changed` says what differs from the text of the case; `short` how the short form differs
    from the long one; `missing` why it is not passed."""
    def add(function):
        key = number, group
        assert key not in CASES, f"case {key} twice"
        CASES[key] = Case(number, name, group, function, (changed, short, missing))
        return function
    return add


def run(group, lab, only=()):
    """Runs the cases of a group in order; yields number, whether it passed, why not, seconds."""
    for key in sorted(CASES):
        one = CASES[key]
        if one.group != group or (only and one.number not in only):
            continue
        start, why = time.monotonic(), ""
        try:
            lab.begin()
            one.function(lab)
            lab.end()
        except Exception as error:  # a case that fails must not take the others with it
            last = traceback.extract_tb(error.__traceback__)
            ours = [f"{it.filename.rsplit('/', 1)[-1]}:{it.lineno}" for it in last]
            why = f"{type(error).__name__}: {error} at {' < '.join(reversed(ours))}"
            lab.recover()
        yield one.number, not why, why, time.monotonic() - start


def equal(found, wanted, what=""):
    assert found == wanted, f"{what}: {found!r}, not {wanted!r}"


def eventually(done, what, within=20):
    """Waits until a condition holds."""
    end = time.monotonic() + within
    while not done():
        assert time.monotonic() < end, f"it did not come about: {what}"
        time.sleep(0.1)
