#!/usr/bin/env python3
"""Writes tests/fixtures/json: JSON texts with what Python's json.dumps makes of them, and doubles with their repr.

    python3 scripts/make_json_cases.py tests/fixtures/json
"""
import json
import random
import struct
import sys

FIXED = [
    "null", "true", "false", "0", "-0", "-0.0", "0.0", "1", "-1", "1.0", "-1.50", "1e0", "1E5", "1e15", "1e16", "1e+16",
    "123456789012345678", "1234567890123456.0", "12345678901234567.0", "1e22", "1e23", "1e-4", "1e-5", "0.0001",
    "0.00001", "0.1", "0.10000000000000001", "0.30000000000000004", "3.141592653589793238", "1e308", "1e-308", "5e-324",
    "2.2250738585072014e-308", "1.7976931348623157e308", "1e-400", "9007199254740993", "9007199254740993.0",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809",
    "18446744073709551615", "18446744073709551616", "123456789012345678901234567890", "-123456789012345678901234567890",
    "1" + "0" * 400, "100000000000000000000.5", '""', '"a"', '"/ \\/ < > & \'"', '"\\u007f\\u0080\\u2028\\u2029"',
    '"\\b\\f\\n\\r\\t\\"\\\\"', '"' + "".join("\\u%04X" % c for c in range(0x30)) + '"', '"\\ud83d\\ude00 \u00e4 \U0001f600"',
    '"\\u00e9\\uFFFD\\uffff"', '"nul \\u0000 in the middle"', "[]", "{}", "[[]]", '{"a": {}}', "[1,2,3]", "[ 1 , 2 ]\n",
    '{"a":1,"b":[true,null,{"c":"d"}],"e":1.5}', '{"b":1,"a":2,"b":3}', '{"a":1,"b":2,"a":{"a":1,"a":[]}}', '{"":0}',
    '{"\\u00e4 \\" \\n":0}', "\t\r\n [\t]\r\n", "[" * 64 + "]" * 64, '{"a":' * 64 + "1" + "}" * 64,
    '{"type":"object","properties":{"city":{"type":"string","description":"St\u00e4dte, \u65e5\u672c"}},"required":["city"]}',
]


def random_value(rng, depth):
    kind = rng.randrange(9 if depth else 6)
    if kind == 0:
        return rng.choice([None, True, False])
    if kind == 1:
        return rng.randrange(-10 ** rng.randrange(1, 30), 10 ** rng.randrange(1, 30))
    if kind == 2:
        return rng.choice([rng.random(), rng.gauss(0, 1) * 10.0 ** rng.randrange(-20, 20), float(rng.randrange(1000)) / 8])
    if kind < 6:
        letters = ["a", "b", " ", '"', "\\", "/", "\n", "\x00", "\x1f", "\x7f", "\u00e4", "\u20ac", "\u2028", "\U0001f600"]
        return "".join(rng.choice(letters) for _ in range(rng.randrange(12)))
    if kind < 8:
        return {"k%d\u00fc" % rng.randrange(6): random_value(rng, depth - 1) for _ in range(rng.randrange(5))}
    return [random_value(rng, depth - 1) for _ in range(rng.randrange(5))]


def main(folder):
    rng = random.Random(20260901)
    texts = FIXED + [json.dumps(random_value(rng, 4), indent=rng.choice([None, 1])) for _ in range(120)]
    with open(folder + "/dumps.jsonl", "w", encoding="utf-8") as out:
        for text in texts:
            case = {"in": text, "out": json.dumps(json.loads(text), ensure_ascii=False)}
            out.write(json.dumps(case, ensure_ascii=False) + "\n")
    doubles = [2.0 ** e for e in range(-1074, 1024, 3)] + [10.0 ** e for e in range(-323, 309, 7)]
    doubles += [struct.unpack("<d", struct.pack("<Q", rng.getrandbits(63)))[0] for _ in range(600)]
    doubles += [rng.randrange(1, 10 ** rng.randrange(1, 17)) / 10.0 ** rng.randrange(0, 22) for _ in range(600)]
    doubles += [2.0 ** -44, 9007199254740993.0, 1e16, 1e15, 9999999999999998.0, 0.0001, 0.00009999]
    with open(folder + "/doubles.txt", "w") as out:
        for value in doubles:
            if value == value and value not in (float("inf"), float("-inf")):
                out.write("%016x %r\n" % (struct.unpack("<Q", struct.pack("<d", value))[0], value))


main(sys.argv[1])
