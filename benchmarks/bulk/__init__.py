"""keyblock-bulk, measured beside the service and stage by stage, and what a large job would take, reckoned from that.

    python -m benchmarks.bulk --data DATA/squad-far     # measures all, writes docs/results/bulk.json and the tables of docs/bulk.md
    python -m benchmarks.bulk --reckon --core-hour 0.05 # another job, or other prices, from what was measured

Measuring takes some five minutes of two cores; give it a machine that does nothing else.
"""
