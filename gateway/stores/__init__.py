"""Where counts live. `base` is the contract, `kinds` the list of stores; `opening` makes them."""
