"""Trainer side of the process group. As in vLLM, rank 0 listens and waits for the server's workers."""

import socket
import tempfile
from dataclasses import dataclass
from pathlib import Path

RENDEZVOUS_TIMEOUT = 60


@dataclass
class Group:
    """Process group; TRL's client clears `socket` and `store` when it closes the group."""

    socket: socket.socket | None
    store: object = None


@dataclass
class Communicator:
    """Sockets to the workers, and the folder for the weight files."""

    workers: list[socket.socket]
    folder: tempfile.TemporaryDirectory
    group: Group
    sent: int = 0

    def next_file(self):
        self.sent += 1
        return Path(self.folder.name) / f"update-{self.sent:04d}.safetensors"


def trainer_init(init_info):
    """Open the group at `master_address`:`master_port`; raise OSError if the port is in use or a worker is missing."""
    address = init_info["master_address"], init_info["master_port"]
    listener = socket.create_server(address, backlog=init_info["world_size"])
    listener.settimeout(RENDEZVOUS_TIMEOUT)
    workers = [listener.accept()[0] for _ in range(init_info["world_size"] - 1)]
    return Communicator(workers, tempfile.TemporaryDirectory(prefix="weights-"), Group(listener))
