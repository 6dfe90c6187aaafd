"""A FLARE process with this on PYTHONPATH loses and delays messages of a run: LOSS is "lost,delayed,seconds"."""

import os
import random
import threading

if "LOSS" in os.environ:
    from nvflare.fuel.f3.cellnet.core_cell import CoreCell
    from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey

    lost, delayed, seconds = map(float, os.environ["LOSS"].split(","))
    receive, draws = CoreCell._process_received_msg, random.Random(os.getpid())

    def receive_some(self, endpoint, connection, message):
        """At every receiver of every link, the relay included."""
        draw = draws.random() if message.get_header(MessageHeaderKey.CHANNEL) == "sottovoce" else 1.0
        if draw < lost:
            return
        if draw < lost + delayed:
            threading.Timer(seconds, receive, (self, endpoint, connection, message)).start()
        else:
            receive(self, endpoint, connection, message)

    CoreCell._process_received_msg = receive_some
