"""The service's logic under faults, a million requests at a time, where a seed repeats all of it.

What runs is the service's own code, from a request's place among those in flight to the model's thread, reloads, the store and an
upstream behind the clients of Redis and HTTP. What is handed in is a `machine` on a `loop` whose clock is a number, a `device`
whose batches take a time, or fail, and servers that go away. Invariants are checked after every event.

python -m benchmarks.simulation --requests 1000000     # until so many requests came
python -m benchmarks.simulation --seed 17              # one episode again; a violation prints this line
"""
