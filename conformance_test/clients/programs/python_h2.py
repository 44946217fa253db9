"""Python's h2 over blocking sockets: python_h2.py TARGET CA COUNT PAUSE SCENARIO..."""

import json
import socket
import ssl
import sys
import time
from collections import Counter

import h2.config
import h2.connection
import h2.events as events

target, ca, count, pause = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])


class Connection:
    """Counts what comes: bodies has the bytes of each stream's body until now, ended how each ended."""

    def __init__(self):
        if target.startswith("unix:"):
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.connect(target[5:])
        else:
            host, port = target.split(":")
            self.sock = socket.create_connection((host, int(port)))
        if ca:
            context = ssl.create_default_context(cafile=ca)
            context.set_alpn_protocols(["h2"])
            self.sock = context.wrap_socket(self.sock, server_hostname="localhost")
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration())
        self.h2.initiate_connection()
        self.bodies, self.ended, self.status, self.acknowledged = {}, {}, {}, 0
        self.flush()
        self.receive()  # the server's settings

    def flush(self):
        self.sock.sendall(self.h2.data_to_send())

    def open(self, method, path, end=True):
        stream = self.h2.get_next_available_stream_id()
        self.h2.send_headers(stream, [(":method", method), (":path", path), (":scheme", "http"), (":authority", "localhost")], end_stream=end)
        self.bodies[stream] = b""
        return stream

    def receive(self):
        """Takes what has come, and gives back the window for each DATA frame at once."""
        data = self.sock.recv(65536)
        if not data:
            raise EOFError("the server closed the connection")
        for e in self.h2.receive_data(data):
            if isinstance(e, events.DataReceived):
                self.bodies[e.stream_id] = self.bodies.get(e.stream_id, b"") + e.data
                self.h2.acknowledge_received_data(e.flow_controlled_length, e.stream_id)
            elif isinstance(e, events.ResponseReceived):
                self.status[e.stream_id] = dict(e.headers)[b":status" if b":status" in dict(e.headers) else ":status"]
            elif isinstance(e, (events.StreamEnded, events.StreamReset)):
                self.ended[e.stream_id] = isinstance(e, events.StreamEnded)
            elif isinstance(e, events.PingAckReceived):
                self.acknowledged += 1
            elif isinstance(e, events.ConnectionTerminated):
                raise EOFError(f"GOAWAY {e.error_code} {e.additional_data}")
        self.flush()

    def send(self, stream, data, end=False):
        while data:
            room = min(self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size, len(data))
            if room > 0:
                self.h2.send_data(stream, data[:room])
                data = data[room:]
                self.flush()
            else:
                self.receive()
        if end:
            self.h2.end_stream(stream)
            self.flush()

    def body(self, stream):
        self.flush()
        while stream not in self.ended:
            self.receive()
        return self.bodies[stream]

    def hello(self):
        return self.body(self.open("GET", "/hello")).decode()


def tally(results):
    return ", ".join(f"{n} {r}" for r, n in sorted(Counter(results).items()))


def unary(c):
    results = []
    for left in range(count // 4, 0, -50):
        streams = [c.open("GET", "/hello") for _ in range(min(left, 50))]
        results += [c.body(s).decode() for s in streams]
    return tally(results)


def up(c):
    stream = c.open("POST", "/count", end=False)
    for i in range(count):
        c.send(stream, b"hello", end=i == count - 1)
    return f"{c.body(stream).decode()} bytes"


def down(c):
    return f"{len(c.body(c.open('GET', f'/source?{count}+5')))} bytes"


def both(c):
    stream, got = c.open("POST", "/echo", end=False), 0
    for i in range(count):
        c.send(stream, b"hello", end=i == count - 1)
        while len(c.bodies[stream]) < 5 * (i - 100):
            c.receive()
    return f"{len(c.body(stream))} bytes"


def slow(c):
    stream, pauses = c.open("GET", "/source?512+16384"), 0
    c.flush()
    while stream not in c.ended:
        c.receive()
        if len(c.bodies[stream]) > pauses * (3 << 20):
            pauses += 1
            time.sleep(pause)
    return f"{len(c.bodies[stream])} bytes"


def reset(c, path, after, result):
    streams = [c.open("GET", path) for _ in range(50)]
    c.flush()
    time.sleep(after)
    for s in streams:
        c.h2.reset_stream(s, 8)
    c.flush()
    return [result] * 50


def cancel(c):
    results = []
    for _ in range(max(count // 1000, 5)):
        results += reset(c, "/wait", 0, "cancelled")
        stream = c.open("GET", "/source?1000000+100")
        c.flush()
        while not c.bodies[stream]:
            c.receive()
        c.h2.reset_stream(stream, 8)
        c.flush()
    return tally(results + [c.hello()])


def deadline(c):
    return tally(reset(c, "/wait", 0.1, "late") + reset(c, "/wait", 0.1, "late") + [c.hello()])


def big(c):
    stream = c.open("POST", "/count", end=False)
    c.send(stream, bytes(8 << 20), end=True)
    return f"{c.body(stream).decode()} up, {len(c.body(c.open('GET', '/source?1+8388608')))} down"


def refuse(c):
    stream = c.open("POST", "/refuse", end=False)
    c.flush()
    c.h2.send_data(stream, bytes(10000))
    c.body(stream)
    return c.status[stream].decode() if isinstance(c.status[stream], bytes) else c.status[stream]


def pings(c):
    for i in range(100):
        c.h2.ping(i.to_bytes(8, "big"))
        c.flush()
        while c.acknowledged <= i:
            c.receive()
    return f"{c.acknowledged} acknowledged, 1 {c.hello()}"


for scenario in sys.argv[5:]:
    start = time.time()
    try:
        result = globals()[scenario](Connection())
    except Exception as e:
        result = repr(e)
    print(json.dumps({"scenario": scenario, "result": result, "seconds": time.time() - start}), flush=True)
