"""
What the paper's noise really gives
===================================

Theorem 1 of the paper says how much noise makes ε = 1. The accountant says what that noise gives against an adversary
who sees the messages: far more than 1, and worse as nodes have more records.
"""

import matplotlib.pyplot as plt

from sottovoce.privacy import ADVERSARIES, Theorem1, compare

# %%
# The paper's setting: twenty nodes of 20,000 records, one record of a node and one edge a round, three passes over
# the data.
RECORDS, DELTA, IOTA = 20_000, 1e-5, 0.1
CLAIMED = (0.2, 0.4, 0.6, 0.8, 1.0)
everything = ADVERSARIES.read("transcript")  # sees every message of every node
true = []
for claimed in CLAIMED:
    noise = Theorem1(claimed, 0.01, IOTA, 1.0, RECORDS, round(3 * RECORDS / IOTA))
    true.append(compare(noise, everything, DELTA).epsilon)
    print(f"claimed: ε = {claimed}; true: ε = {true[-1]:,.0f} at δ = {DELTA:g}")

# %%
figure, axis = plt.subplots(figsize=(6, 3.4), layout="constrained")
axis.plot(CLAIMED, true, "o-", color="tab:red", label="true")
axis.plot(CLAIMED, CLAIMED, "--", color="black", label="claimed")
axis.set(yscale="log", xlabel="ε claimed by Theorem 1", ylabel=f"ε at δ = {DELTA:g}")
axis.legend(frameon=False)
plt.show()
