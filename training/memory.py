"""Memory: on a CPU it is kept in the process, on a GPU it is looked at.

Torch takes and gives back large blocks many times a step. glibc maps one anew each time it is
asked for, and the kernel clears all its pages again: with small models a fifth of the time of a
step. Knows nothing of models and trainers.
"""

import ctypes
import platform

# Of malloc.h: blocks from so many bytes on are mapped, and so many free ones are given back.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_ALL_BUT_HUGE = 1 << 30


def keep_memory() -> bool:
    """Have malloc keep what is freed, up to 1 GiB a block, from here on; whether it does.

    Where there is no glibc (other systems, other libraries) nothing changes.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    done = [mallopt(name, _ALL_BUT_HUGE) for name in (_MMAP_THRESHOLD, _TRIM_THRESHOLD)]
    return all(done)


def gpu_memory_used() -> int | None:
    """Bytes in use on this process's GPU, by whomever; None without one."""
    import torch

    if not torch.cuda.is_available():
        return None
    free, total = torch.cuda.mem_get_info()
    # What was in use since the last time is more than what is now.
    reserved = torch.cuda.max_memory_reserved() - torch.cuda.memory_reserved()
    torch.cuda.reset_peak_memory_stats()
    return int(min(total, total - free + reserved))
