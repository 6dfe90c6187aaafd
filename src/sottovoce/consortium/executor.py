"""A site's part of a job on FLARE: the node's loop over its own records, over the transport of `flare.py`.

The job brings a digest and nothing else. What is run is the site's own copy of the agreement; a job for another one is
refused. What goes back to the server is: that the site is ready, how far it is (rounds are public), and at the end
the noisy count of right answers. An error goes back as a code of a fixed list (`job.Code`), since its sentence may
quote a record; the sentence itself stays in the site's own log.
"""

import json
import logging
from typing import Any

from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from sottovoce.consortium import flare_hardening
from sottovoce.consortium.flare import Channel, kit_of, simulated
from sottovoce.consortium.job import PREPARE, TRAIN, code_of
from sottovoce.consortium.node import ConsortiumNode
from sottovoce.errors import SottovoceError, SpecError

log = logging.getLogger(__name__)


class GossipExecutor(Executor):  # type: ignore[misc]
    """What FLARE starts at every site.

    Parameters
    ----------
    digest : of the run that the job is for; the site's own agreement must have the same
    """

    def __init__(self, digest: str) -> None:
        super().__init__()
        self.digest = digest
        self._node: ConsortiumNode | None = None
        self._signal: Signal | None = None

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """Prepare, so that an error costs nothing; then train, test, and keep the results."""
        self._signal = abort_signal
        try:
            if task_name == PREPARE:
                return _reply(self._prepare(fl_ctx))
            if task_name == TRAIN and self._node is not None:
                return _reply(self._node.take_part())
            return make_reply(ReturnCode.TASK_UNKNOWN)
        except SottovoceError as error:
            log.error("%s", error)
            return _reply({"error": code_of(error)})
        except Exception as error:
            log.exception("an error that should not be; please report it")
            return _reply({"error": code_of(error)})
        finally:
            if task_name == TRAIN and self._node is not None:
                self._node.close()

    def _prepare(self, fl_ctx: FLContext) -> dict[str, Any]:
        name = str(fl_ctx.get_identity_name())
        cell = fl_ctx.get_engine().get_cell().core_cell
        if flare_hardening.hardened() is None and not simulated(cell):
            raise SpecError("this site was not started with `sottovoce consortium start`: it obeys more than it should")
        kit = kit_of(fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT), name, cell)
        channel = Channel(cell, str(fl_ctx.get_job_id()), plaintext=simulated(cell))
        self._node = ConsortiumNode(kit, name, self.digest, channel, self._stopped)
        return self._node.ready()

    def _stopped(self) -> bool:
        return self._signal is not None and bool(self._signal.triggered)


def _reply(value: dict[str, Any]) -> Shareable:
    reply = make_reply(ReturnCode.OK)
    reply["sottovoce"] = json.dumps(value)
    return reply
