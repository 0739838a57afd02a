"""The service's logic under faults, a million requests at a time, where a seed repeats all of it.

What runs is the service's own code: admission, plan, preparation's slices, the look-up of stored documents, the rounds of the
model's thread, jobs, warm-ups. What is handed in is a `machine` whose clock is a number and whose threads are events, a `device`
whose batches take a time, or fail, and a `store` that goes away. Invariants are checked after every event.

python -m benchmarks.simulation --requests 1000000     # until so many requests came
python -m benchmarks.simulation --seed 17              # one episode again; a violation prints this line
"""
