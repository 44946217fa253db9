// Connect's client for Node, speaking gRPC: node connect.js TARGET CA COUNT PAUSE SCENARIO...
const fs = require('fs');
const net = require('net');
const { create, createFileRegistry } = require('@bufbuild/protobuf');
const { FileDescriptorSetSchema, FileDescriptorProtoSchema, file_google_protobuf_wrappers } = require('@bufbuild/protobuf/wkt');
const { createClient, Code, ConnectError } = require('@connectrpc/connect');
const { createGrpcTransport, Http2SessionManager } = require('@connectrpc/connect-node');
const { sleep, tally, main } = require('./common.js');

const [target, ca, count, pause] = [process.argv[2], process.argv[3], +process.argv[4], +process.argv[5]];

// The service, which generated code would have.
const bytesValue = '.google.protobuf.BytesValue';
const method = (name, clientStreaming, serverStreaming) => ({ name, inputType: bytesValue, outputType: bytesValue, clientStreaming, serverStreaming });
const registry = createFileRegistry(create(FileDescriptorSetSchema, {
  file: [file_google_protobuf_wrappers.proto, create(FileDescriptorProtoSchema, {
    name: 'bytes.proto', package: 'percore', syntax: 'proto3', dependency: ['google/protobuf/wrappers.proto'],
    service: [{
      name: 'Bytes',
      method: [method('Echo'), method('Wait'), method('Sink', true), method('Source', false, true), method('Chat', true, true)],
    }],
  })],
}));
const service = registry.getService('percore.Bytes');

const small = { value: Buffer.from('hello') };
const name = (err) => {
  const code = ConnectError.from(err).code;
  return Code[code].replace(/([a-z])([A-Z])/g, '$1_$2').toUpperCase().replace('CANCELED', 'CANCELLED');
};
const outcome = (call) => call.then(() => 'OK', name);

// connect makes a client and ends its connection behind what do does.
async function connect(does, pings = {}) {
  const unix = target.startsWith('unix:');
  const baseUrl = unix ? 'http://localhost' : `${ca ? 'https' : 'http'}://${target}`;
  const options = ca ? { ca: fs.readFileSync(ca) } : {};
  if (unix) options.createConnection = () => net.connect(target.slice(5));
  const sessionManager = new Http2SessionManager(baseUrl, pings, options);
  try {
    return await does(createClient(service, createGrpcTransport({ baseUrl, sessionManager, readMaxBytes: 64 << 20, writeMaxBytes: 64 << 20 })));
  } finally {
    sessionManager.abort();
  }
}

async function* send(n) {
  for (let i = 0; i < n; i++) yield small;
}

async function receive(stream, each = () => {}) {
  let n = 0;
  for await (const m of stream) {
    n++;
    await each(n, m);
  }
  return `${n} messages`;
}

const source = (text) => ({ value: Buffer.from(text) });

main(process.argv.slice(6), {
  unary: () => connect(async (c) => {
    const all = [];
    for (let left = count / 4; left > 0; left -= 100) {
      all.push(...await Promise.all(Array.from({ length: Math.min(left, 100) }, () => outcome(c.echo(small)))));
    }
    return tally(all);
  }),
  up: () => connect(async (c) => Buffer.from((await c.sink(send(count))).value).toString()),
  down: () => connect((c) => receive(c.source(source(count + ' 5')))),
  both: () => connect((c) => receive(c.chat(send(count)))),
  slow: () => connect((c) => receive(c.source(source('512 16384')), (n) => (n === 1 || n === 200 ? sleep(pause) : null))),
  cancel: () => connect(async (c) => {
    const all = [];
    for (let i = 0; i < Math.max(Math.floor(count / 1000), 5); i++) {
      const abort = new AbortController();
      const calls = Array.from({ length: 50 }, () => outcome(c.wait(small, { signal: abort.signal })));
      await sleep(0.001);
      abort.abort();
      all.push(...await Promise.all(calls));
      const stop = new AbortController();
      await receive(c.source(source('1000000 100'), { signal: stop.signal }), (n) => { if (n === 3) stop.abort(); }).catch(() => {});
    }
    return tally([...all, await outcome(c.echo(small))]);
  }),
  deadline: () => connect(async (c) => {
    const calls = Array.from({ length: 100 }, () => outcome(c.wait(small, { timeoutMs: 100 })));
    return tally([...await Promise.all(calls), await outcome(c.echo(small))]);
  }),
  big: () => connect(async (c) => {
    const m = { value: Buffer.alloc(8 << 20) };
    let n = 0;
    for (let i = 0; i < 3; i++) n += Buffer.from((await c.echo(m)).value).equals(m.value);
    return `${n} the same, then ${await outcome(c.echo({ value: Buffer.alloc(17 << 20) }))}`;
  }),
  status: () => connect((c) => c.echo({ value: Buffer.from('fail') }).then(String, (err) => `${name(err)} ${err.rawMessage}`)),
  metadata: () => connect(async (c) => {
    const headers = new Headers();
    for (let i = 0; i < 51; i++) headers.set('x-field-' + i, 'v'.repeat(100));
    const back = [];
    const count = (md) => [...headers.keys()].filter((k) => md.get(k) === headers.get(k)).length;
    await c.echo(small, { headers, onHeader: (md) => { back[0] = count(md); }, onTrailer: (md) => { back[1] = count(md); } });
    return `${back[0]} in the header, ${back[1]} in the trailer`;
  }),
  keepalive: () => connect((c) => receive(c.chat((async function* () {
    yield small;
    await sleep(Math.max(pause, 0.7));
    yield small;
  })())), { pingIntervalMs: 200 }),
});
