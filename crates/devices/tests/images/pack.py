#!/usr/bin/env python3
"""Packs images that real programs made (mkfs.xfs, pvcreate, ...) for crates/devices/tests/contents.rs.

    pack.py IMAGE... : writes NAME.gz beside this script for each NAME.img

Of an image its size is kept, and the sectors of its first 128 KiB, of 64 KiB at 64 MiB and of its last 64 KiB that are not zero: all places
that formats have for their signatures. Little endian: size (8), then for each sector its number (8) and 512 bytes.
"""
import gzip, os, struct, sys

KIB = 1 << 10
for path in sys.argv[1:]:
    size = os.path.getsize(path)
    name = os.path.basename(path).removesuffix(".img")
    ranges = [(0, 128 * KIB), (65536 * KIB, 65600 * KIB), (size - 64 * KIB, size)]
    packed = [struct.pack("<Q", size)]
    seen = set()
    with open(path, "rb") as image:
        for begin, end in ranges:
            for sector in range(max(begin, 0) // 512, min(end, size) // 512):
                image.seek(sector * 512)
                content = image.read(512)
                if sector not in seen and any(content):
                    packed.append(struct.pack("<Q", sector) + content)
                seen.add(sector)
    target = os.path.join(os.path.dirname(os.path.abspath(__file__)), name + ".gz")
    with open(target, "wb") as file:
        file.write(gzip.compress(b"".join(packed), 9, mtime=0))
