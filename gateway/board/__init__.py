"""Numbers that the workers of one gateway share.

The supervisor makes a `Board`, a piece of memory that all its workers inherit. Each worker has a
`Seat`, where it alone writes; all read the sum. So nothing is locked, and a worker that is killed
in the middle of a change leaves nothing behind but its own numbers, which the supervisor clears.
`BoardTable` is how numbers of names are kept there.

What a worker has counted must outlive it. It is in the worker's `Ledger`, which nobody clears: the
next worker at its place continues it.
"""
