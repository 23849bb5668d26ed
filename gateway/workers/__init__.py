"""Several processes that are one gateway.

`supervisor` is the process that the operator starts: it takes the addresses, starts the others
and starts them again when they die. Each `worker` is a gateway on a socket of its own for each
address; the kernel spreads connections over them. The `limiter` keeps the counts of the memory
store and answers on the admin listener for all of them (`fleet`). `orders` are what the
supervisor says to its children, `reports` what workers tell the limiter about themselves.
"""
