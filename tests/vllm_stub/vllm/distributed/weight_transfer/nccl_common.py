"""The trainer's end of the group: rank 0 listens, as vLLM's does, and waits for the server's workers."""

import socket
import tempfile
from dataclasses import dataclass
from pathlib import Path

RENDEZVOUS_TIMEOUT = 60


@dataclass
class Group:
    """`socket` and `store` are what TRL's client clears when it closes the group."""

    socket: socket.socket | None
    store: object = None


@dataclass
class Communicator:
    """The sockets to the workers, and the folder in which the weights are written."""

    workers: list[socket.socket]
    folder: tempfile.TemporaryDirectory
    group: Group
    sent: int = 0

    def next_file(self):
        self.sent += 1
        return Path(self.folder.name) / f"update-{self.sent:04d}.safetensors"


def trainer_init(init_info):
    """Opens the group at `master_address`:`master_port`; OSError if the port is taken or a worker stays away."""
    address = init_info["master_address"], init_info["master_port"]
    listener = socket.create_server(address, backlog=init_info["world_size"])
    listener.settimeout(RENDEZVOUS_TIMEOUT)
    workers = [listener.accept()[0] for _ in range(init_info["world_size"] - 1)]
    return Communicator(workers, tempfile.TemporaryDirectory(prefix="weights-"), Group(listener))
