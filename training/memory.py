"""Memory that torch takes and gives back on a CPU many times a step is kept in the process.

glibc maps a large block anew each time it is asked for, and the kernel clears all its pages
again. With small models that is a fifth of the time of a step. Knows nothing of torch.
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
