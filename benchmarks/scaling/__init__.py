"""What happens beyond one machine, worked out from what was measured on one; docs/scaling.md says what it means.

python -m benchmarks.scaling              # a day's traffic under each autoscaler of k8s/components
python -m benchmarks.scaling.balancers    # who gets a request: waiting times, and what caches would gain
python -m benchmarks.scaling.stores       # documents by id: what LMDB and Redis serve
python -m benchmarks.scaling.nodes        # documents by id on a Redis Cluster: what a node serves, and what outages cost
"""
