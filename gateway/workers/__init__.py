"""A gateway of several processes.

`supervisor` is the process that the operator starts: it binds the addresses, and starts the other
processes, again if they die. Each `worker` is a gateway with its own socket for each address; the
kernel spreads connections over them. The `limiter` keeps the counts of the memory store and serves
the admin listener for all workers (`fleet`). `orders` are messages between the supervisor and its
children, `reports` those of workers to the limiter. In a reload, `reload` is the part of
the supervisor, `preparing` that of each child.
"""
