"""gRPC's C core with its Python API, grpcio: grpcio.py TARGET CA COUNT PAUSE SCENARIO..."""

import json
import sys
import threading
import time

import grpc

target, ca, count, pause = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
SMALL = b"\x0a\x05hello"  # a google.protobuf.BytesValue


def message(value):
    length, n = b"", len(value)
    while n > 127:
        length, n = length + bytes([n & 127 | 128]), n >> 7
    return b"\x0a" + length + bytes([n]) + value


def open_channel(*options):
    options += (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1))
    if ca:
        return grpc.secure_channel(target, grpc.ssl_channel_credentials(open(ca, "rb").read()), options)
    return grpc.insecure_channel(target, options)


class Channel:
    def __init__(self, *options):
        self.channel = open_channel(*options)
        self.echo = self.channel.unary_unary("/percore.Bytes/Echo")
        self.wait = self.channel.unary_unary("/percore.Bytes/Wait")
        self.sink = self.channel.stream_unary("/percore.Bytes/Sink")
        self.source = self.channel.unary_stream("/percore.Bytes/Source")
        self.chat = self.channel.stream_stream("/percore.Bytes/Chat")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.channel.close()


def code_of(call):
    try:
        call.result()
        return "OK"
    except grpc.FutureCancelledError:
        return "CANCELLED"
    except grpc.RpcError as e:
        return e.code().name


def tally(codes):
    codes = list(codes)
    return ", ".join(f"{codes.count(c)} {c}" for c in sorted(set(codes)))


def unary():
    with Channel() as c:
        left, codes = count // 4, []
        while left > 0:
            calls = [c.echo.future(SMALL) for _ in range(min(left, 100))]
            codes += [code_of(call) for call in calls]
            left -= len(calls)
        return tally(codes)


def up():
    with Channel() as c:
        return c.sink(SMALL for _ in range(count))[2:].decode()


def down():
    with Channel() as c:
        return f"{sum(m == SMALL[:1] + bytes([5]) + bytes(5) for m in c.source(message(b'%d 5' % count)))} messages"


def both():
    with Channel() as c:
        return f"{sum(m == SMALL for m in c.chat(SMALL for _ in range(count)))} messages"


def slow():
    with Channel() as c:
        n = 0
        for m in c.source(message(b"512 16384")):
            n += len(m) > 16384
            if n in (1, 200):
                time.sleep(pause)
        return f"{n} messages"


def cancel():
    with Channel() as c:
        codes = []
        for _ in range(max(count // 1000, 5)):
            calls = [c.wait.future(SMALL) for _ in range(50)]
            for call in calls:
                call.cancel()
            codes += [code_of(call) for call in calls]
            stream = c.source(message(b"1000000 100"))
            for _ in range(3):
                next(stream)
            stream.cancel()
        return tally(codes + [code_of(c.echo.future(SMALL))])


def deadline():
    with Channel() as c:
        calls = [c.wait.future(SMALL, timeout=0.1) for _ in range(100)]
        return tally([code_of(call) for call in calls] + [code_of(c.echo.future(SMALL))])


def big():
    with Channel() as c:
        same = sum(c.echo(m) == m for m in [message(bytes(8 << 20))] * 3)
        return f"{same} the same, then {code_of(c.echo.future(message(bytes(17 << 20))))}"


def status():
    with Channel() as c:
        call = c.echo.future(message(b"fail"))
        return f"{code_of(call)} {call.details()}"


def metadata():
    with Channel() as c:
        sent = [(f"x-field-{i}", "v" * 100) for i in range(50)] + [("x-data-bin", bytes(range(256)))]
        _, call = c.echo.with_call(SMALL, metadata=sent)
        back = [sum(m in fields for m in sent) for fields in (call.initial_metadata(), call.trailing_metadata())]
        return "%d in the header, %d in the trailer" % tuple(back)


def pinging(every, lasts):
    """Leaves a stream idle while the connection pings."""
    with Channel(("grpc.keepalive_time_ms", every), ("grpc.keepalive_permit_without_calls", 1), ("grpc.http2.max_pings_without_data", 0), ("grpc.http2.min_time_between_pings_ms", every)) as c:
        over = threading.Event()

        def messages():
            yield SMALL
            over.wait(lasts)
            yield SMALL

        try:
            return f"{len(list(c.chat(messages())))} messages"
        except grpc.RpcError as e:
            return e.code().name
        finally:
            over.set()


def keepalive():
    return pinging(200, max(pause, 0.7))


def toomanypings():
    return pinging(10, 20)


for scenario in sys.argv[5:]:
    start = time.time()
    try:
        result = globals()[scenario]()
    except grpc.RpcError as e:
        result = f"{e.code().name}: {e.details()}"
    print(json.dumps({"scenario": scenario, "result": result, "seconds": time.time() - start}), flush=True)
