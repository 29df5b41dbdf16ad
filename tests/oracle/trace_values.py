"""trace_values.py - the numbers of a trace (`verbatim run --trace --trace-values`) as numpy arrays. RECEIPTS.md, "Traces".

For a file that was just written on this machine: only its magic and version are checked. Must not know what the numbers mean.
"""
import ctypes
import struct

import numpy as np


def decompressed(data):
    """The content of one zstd frame, decompressed by the library that the program itself needs."""
    zstd = ctypes.CDLL("libzstd.so.1")
    zstd.ZSTD_decompress.restype = ctypes.c_size_t
    zstd.ZSTD_decompress.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
    room = 8 * len(data)
    while True:
        buffer = ctypes.create_string_buffer(room)
        size = zstd.ZSTD_decompress(buffer, room, data, len(data))
        if not zstd.ZSTD_isError(ctypes.c_size_t(size)):
            return buffer.raw[:size]
        room *= 2
        assert room < 1 << 34, "not a zstd frame"


def read(path):
    """For each request: name of a point -> [positions, count], bf16 as float32, u32 as it is."""
    with open(path, "rb") as file:
        data = decompressed(file.read())
    assert data[:8] == b"VTRACE\r\n" and struct.unpack_from("<I", data, 8) == (1,), "another file, or another version"
    count, at, points, requests = struct.unpack_from("<I", data, 60)[0], 64, [], []
    for _ in range(count):
        _, _, kind, numbers, _, size = struct.unpack_from("<6I", data, at)
        points.append((data[at + 24:at + 24 + size].decode(), kind, numbers))
        at += 24 + size
    while True:
        kind = struct.unpack_from("<I", data, at)[0]
        if kind == 1:
            requests.append({})
            at += 28 + struct.unpack_from("<I", data, at + 24)[0]
        elif kind == 2:
            name, number, numbers = points[struct.unpack_from("<I", data, at + 8)[0]]
            values = np.frombuffer(data, ["<u2", "<f4", "<u4"][number], numbers, at + 12)
            requests[-1].setdefault(name, []).append((values.astype(np.uint32) << 16).view(np.float32) if number == 0 else values)
            at += 12 + values.nbytes
        elif kind == 3:
            at += 12 + 8 * count
        else:
            return [{name: np.stack(rows) for name, rows in request.items()} for request in requests]
