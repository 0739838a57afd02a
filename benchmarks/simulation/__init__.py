"""Runs the service's logic under faults, with a million requests at a time. A seed repeats all of it.

The service's own code runs: admission of requests, the model's thread, reloads, the store, and an upstream, behind the clients of
Redis and HTTP. The simulation provides a `machine` on a `loop` whose clock is a number, a `device` whose batches take time or fail,
and servers that go away. Invariants are checked after every event.

python -m benchmarks.simulation --requests 1000000     # runs until this number of requests
python -m benchmarks.simulation --seed 17              # one episode again; a violation prints this line
"""
