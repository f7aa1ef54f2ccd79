"""Runs a group of cases against a running UPF, or lists the cases.

    run.py LAB GROUP [CASE...]   a line of JSON for each case, and one with the messages that tshark calls malformed
    run.py --cases               all cases as JSON
    run.py --table               all cases as a table
    run.py --self                the library against scapy and tshark, without a UPF
"""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True

import buffering  # noqa: E402, F401
import change  # noqa: E402, F401
import data  # noqa: E402, F401
import gtp  # noqa: E402, F401
import limits  # noqa: E402, F401
import node  # noqa: E402, F401
import session  # noqa: E402, F401
import soak  # noqa: E402, F401
import survive  # noqa: E402, F401
import usage  # noqa: E402, F401
from lab import Lab  # noqa: E402
from suite import CASES, run  # noqa: E402


def cases():
    """Returns an entry per number: its groups, and name and remarks of the first part."""
    found = {}
    for key in sorted(CASES):
        one = CASES[key]
        entry = found.setdefault(one.number, {"case": one.number, "name": one.name, "groups": [],
                                              "changed": None, "short": None, "missing": None})
        entry["groups"].append(one.group)
        for remark in ("changed", "short", "missing"):
            entry[remark] = entry[remark] or getattr(one, remark)
    return list(found.values())


def table():
    """Returns the table of the UPF's README."""
    lines = ["| case | | result |", "|---|---|---|"]
    for one in cases():
        result = "passed"
        if one["changed"]:
            result += f"; changed: {one['changed']}"
        if one["short"]:
            result += f"; in `make test` shorter: {one['short']}"
        if one["missing"]:
            result = f"**not passed**: {one['missing']}"
        lines.append(f"| {one['case']} | {one['name']} | {result} |")
    return "\n".join(lines)


def main(words):
    if words == ["--cases"]:
        print(json.dumps(cases()))
    elif words == ["--table"]:
        print(table())
    elif words == ["--self"]:
        import proof
        proof.run()
    else:
        path, group, *only = words
        lab = Lab(path, group)
        lab.wait_until_up()
        lab.wait_for_lanes()
        for number, passed, why, seconds in run(group, lab, {int(it) for it in only}):
            line = {"case": number, "passed": passed, "why": why, "seconds": round(seconds, 2)}
            print(json.dumps(line), flush=True)
        print(json.dumps({"malformed": lab.judge()}), flush=True)


main(sys.argv[1:])
