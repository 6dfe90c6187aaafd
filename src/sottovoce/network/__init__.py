"""Who talks to whom, and when: graphs, gossip weights, activation, the schedule of a run and how fast it mixes."""
