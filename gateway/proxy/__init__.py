"""The data path: a request comes in, is held to its limits, goes on, and its answer returns.

Read `server` first: the way of a request on one page. `client` and `upstream` are the two
connections, `pool` lends the second kind out, `forward` and `upload` bring bytes from one to
the other, and `tunnel` those of WebSockets. `head` decides without any I/O what of a
request goes on; `grammar`, `answer_head`, `chunks` and `reader` what an answer is.
"""
