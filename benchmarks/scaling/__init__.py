"""Computes what happens on several machines from measurements on one. See docs/scaling.md for the results.

python -m benchmarks.scaling              # a day's traffic under each autoscaler of k8s/components
python -m benchmarks.scaling.balancers    # balancers: waiting times, and what caches would gain
python -m benchmarks.scaling.stores       # documents by id: the rates of LMDB and Redis
python -m benchmarks.scaling.nodes        # documents by id on a Redis Cluster: rate of a node, and cost of outages
"""
