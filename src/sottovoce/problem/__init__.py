"""The problem of eq. (1): min F(x) = Σ w_i f_i(x) + h(x), with the data of each node in its own shard."""
