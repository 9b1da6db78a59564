"""Send weights by writing one file per update and sending the file's name to every worker."""

from safetensors.torch import save_file


def packed_nccl_broadcast_producer(iterator, group, src, post_iter_func):
    """Write the tensors that `post_iter_func` returns for the items of `iterator`; `trainer_init` created `group`."""
    tensors = {item[0]: post_iter_func(item).detach().cpu().contiguous().clone() for item in iterator}
    file = group.next_file()
    save_file(tensors, file)
    for worker in group.workers:
        worker.sendall(f"{file}\n".encode())
