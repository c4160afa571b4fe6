#!/usr/bin/env python3
"""Writes a made-up routing trace of the full model's shape, for comparing residency policies (docs/experiments/policies.md).

    make_trace.py KIND OUT [--passes N] [--rows N] [--seed N]

skewed    every layer has its own fixed popularity, falling as 1 / (rank + 4) ^ 0.8; a token repeats each expert of the
          token before with probability 0.3
drifting  the same, but the popularity belongs to one of six topics, and the topic changes about every 60 tokens
uniform   no popularity at all: the floor of what any policy can find
"""
import argparse
import random
import struct

LAYERS, DENSE, EXPERTS, PER_ROW = 79, 3, 256, 8

TABLE = []
for i in range(256):
    c = i
    for _ in range(8):
        c = c >> 1 ^ (0x82F63B78 if c & 1 else 0)
    TABLE.append(c)


def crc32c(data):
    c = 0xFFFFFFFF
    for b in data:
        c = TABLE[(c ^ b) & 255] ^ c >> 8
    return c ^ 0xFFFFFFFF


def rankings(rng, skew):
    weights = [1 / (rank + 4) ** skew for rank in range(EXPERTS)]
    out = []
    for _ in range(LAYERS):
        rng.shuffle(weights)
        total, sums = 0, []
        for w in weights:
            total += w
            sums.append(total)
        out.append(sums)
    return out


def choose(rng, sums, last):
    chosen = {e for e in last if rng.random() < 0.3}
    ids = range(EXPERTS)
    while len(chosen) < PER_ROW:
        chosen.update(rng.choices(ids, cum_weights=sums, k=PER_ROW - len(chosen)))
    return sorted(chosen)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("kind", choices=("skewed", "drifting", "uniform"))
    ap.add_argument("out")
    ap.add_argument("--passes", type=int, default=300)
    ap.add_argument("--rows", type=int, default=1)
    ap.add_argument("--seed", type=int, default=1)
    a = ap.parse_args()
    rng = random.Random(a.seed)
    topics = [rankings(rng, 0 if a.kind == "uniform" else 0.8) for _ in range(6 if a.kind == "drifting" else 1)]
    topic, last = 0, [[] for _ in range(LAYERS)]
    header = struct.pack("<8sIIII32sI", b"WEIRTRC1", 1, LAYERS, EXPERTS, PER_ROW, b"made up".ljust(32, b"\0"), 0)
    with open(a.out, "wb") as f:
        f.write(header + struct.pack("<I", crc32c(header)))
        for number in range(a.passes):
            ids = [[] for _ in range(LAYERS)]
            for _ in range(a.rows):
                if rng.random() < 1 / 60:
                    topic = rng.randrange(len(topics))
                for layer in range(DENSE, LAYERS - 1):
                    last[layer] = choose(rng, topics[topic][layer], last[layer])
                    ids[layer] += last[layer]
            for layer in range(DENSE, LAYERS - 1):
                body = struct.pack("<IIHBB", number + 1, a.rows, layer, 1 if a.rows == 1 else 0, 0) + bytes(ids[layer])
                record = struct.pack("<I", len(body)) + body
                f.write(record + struct.pack("<I", crc32c(record)))


main()
