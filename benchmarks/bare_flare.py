"""The least that a FLARE job can do: exchange vectors along a schedule, with nothing around it. For `flare.py`.

`aux` sends them the way that FLARE documents (auxiliary requests), `cell` the way that our transport does.
"""

import json
import threading
import time
from pathlib import Path

import numpy as np
from nvflare.apis.controller_spec import Task
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable, make_reply

from sottovoce.consortium.agreement import read_agreement
from sottovoce.consortium.flare import Channel

TOPIC = "bare"


class BareExecutor(Executor):
    """Averages with its peers, round by round."""

    def __init__(self, mode: str):
        super().__init__()
        self.mode = mode
        self._posted, self._heard, self._changed = {}, {}, threading.Condition()

    def execute(self, task_name, shareable, fl_ctx, abort_signal):
        """Register handlers first, so that nobody is queried too early; then go."""
        self._engine, self._ctx, me = fl_ctx.get_engine(), fl_ctx, fl_ctx.get_identity_name()
        if task_name == "register":
            kit = Path(fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT).get_root_dir())
            self._kit, self._run = kit, read_agreement(kit / "local" / "consortium.toml").run
            if self.mode == "aux":
                self._engine.register_aux_message_handler(TOPIC, self._answer)
            else:
                self._channel = Channel(self._engine.get_cell().core_cell, fl_ctx.get_job_id())
                self._channel.serve(TOPIC, lambda site, body: self._answer(site, int.from_bytes(body[:8]), body[8:]))
            return make_reply(ReturnCode.OK)
        run, i = self._run, self._run.number(me)
        z = np.full((1, run.m), float(i))
        began = time.perf_counter()
        for t in run.rounds(i).tolist():
            payload = z.tobytes()
            for j, weight in run.links(t, i):
                z += weight * (np.frombuffer(self._exchange(t, run.nodes[j], i < j, payload)) - z)
        seconds = time.perf_counter() - began
        (self._kit / f"bare-{self.mode}.json").write_text(json.dumps({"seconds": seconds}))
        return make_reply(ReturnCode.OK)

    def _exchange(self, t, peer, ask, payload):
        with self._changed:
            self._posted[t, peer] = payload
            self._changed.notify_all()
            if not ask:
                assert self._changed.wait_for(lambda: (t, peer) in self._heard, timeout=60)
                return self._heard.pop((t, peer))
        if self.mode == "cell":
            return self._channel.ask(peer, TOPIC, t.to_bytes(8) + payload)
        request = Shareable({"t": t, "x": payload})
        return self._engine.send_aux_request([peer], TOPIC, request, 60.0, self._ctx, secure=True)[peer]["x"]

    def _answer(self, peer, t, payload):
        with self._changed:
            self._heard[t, peer] = payload
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: (t, peer) in self._posted, timeout=60)
            return self._posted.pop((t, peer))

    def _answer(self, topic, request, fl_ctx):
        reply = make_reply(ReturnCode.OK)
        reply["x"] = self._answer(fl_ctx.get_peer_context().get_identity_name(), request["t"], request["x"])
        return reply


class BareController(Controller):
    """Starts them."""

    def start_controller(self, fl_ctx):
        """Nothing."""

    def stop_controller(self, fl_ctx):
        """Nothing."""

    def control_flow(self, abort_signal, fl_ctx):
        """Register, then go."""
        for name in ("register", "go"):
            task = Task(name=name, data=Shareable())
            self.broadcast_and_wait(task, fl_ctx, min_responses=0, abort_signal=abort_signal)  # 0: of all

    def process_result_of_unknown_task(self, client, task_name, client_task_id, result, fl_ctx):
        """Nothing."""
