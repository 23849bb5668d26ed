"""One module for each library, all with the same function: `opened(job, quota)`.

It yields a `Burst`: a function that asks for one key after the other in a loop of its own, so
that nothing of the benchmark stands between two calls of the library. Only the process that
measures a library imports its module, and only that process needs to have it installed.
"""
