"""What happens when something breaks: faults done to a running service, one after the other, and what it made of each.

    python -m benchmarks.faults [--only NAME ...] [--publish]

Each fault is done to a process of its own, which real clients ask meanwhile. What must hold is checked: the command ends with 1
where something did not.
"""
