// grpc-js: node grpcjs.js TARGET CA COUNT PAUSE SCENARIO...
const fs = require('fs');
const grpc = require('@grpc/grpc-js');
const { message, sleep, tally, main } = require('./common.js');

const [target, ca, count, pause] = [process.argv[2], process.argv[3], +process.argv[4], +process.argv[5]];
const small = message(Buffer.from('hello'));
const same = (x) => x;

// connect makes a client and closes it behind what do does.
async function connect(options, does) {
  const creds = ca ? grpc.credentials.createSsl(fs.readFileSync(ca)) : grpc.credentials.createInsecure();
  const client = new grpc.Client(target, creds, {
    'grpc.max_receive_message_length': -1, 'grpc.max_send_message_length': -1, 'grpc.use_local_subchannel_pool': 1, ...options,
  });
  try {
    return await does(client);
  } finally {
    client.close();
  }
}

// unaryCall resolves with the call's name of status and what came with it.
function unaryCall(client, method, request, options = {}, metadata = new grpc.Metadata(), started = () => {}) {
  return new Promise((resolve) => {
    const got = {};
    const call = client.makeUnaryRequest('/percore.Bytes/' + method, same, same, request, metadata, options, (err, response) => {
      Object.assign(got, { code: grpc.status[err ? err.code : 0], details: err ? err.details : '', response });
    });
    call.on('metadata', (md) => { got.header = md; });
    call.on('status', (s) => setImmediate(() => resolve({ ...got, trailer: s.metadata })));
    started(call);
  });
}

// receive counts a stream's messages and rejects with its error. each may return a promise.
async function receive(stream, each = () => {}) {
  let n = 0;
  for await (const m of stream) {
    n++;
    await each(n, m);
  }
  return n;
}

async function send(stream, n) {
  for (let i = 0; i < n; i++) {
    if (!stream.write(small)) await new Promise((resolve) => stream.once('drain', resolve));
  }
  stream.end();
}

const source = (client, text) => client.makeServerStreamRequest('/percore.Bytes/Source', same, same, message(Buffer.from(text)), new grpc.Metadata(), {});
const chat = (client) => client.makeBidiStreamRequest('/percore.Bytes/Chat', same, same, new grpc.Metadata(), {});

const pinging = (every, lasts) => connect({ 'grpc.keepalive_time_ms': every, 'grpc.keepalive_permit_without_calls': 1 }, async (client) => {
  const stream = chat(client);
  const all = receive(stream);
  const failed = all.then(() => '', (err) => grpc.status[err.code]);
  stream.write(small);
  const code = await Promise.race([failed, sleep(lasts)]);
  if (code) return code;
  stream.end(small);
  return `${await all} messages`;
});

main(process.argv.slice(6), {
  unary: () => connect({}, async (client) => {
    const codes = [];
    for (let left = count / 4; left > 0; left -= 100) {
      const calls = Array.from({ length: Math.min(left, 100) }, () => unaryCall(client, 'Echo', small));
      codes.push(...(await Promise.all(calls)).map((got) => got.code));
    }
    return tally(codes);
  }),
  up: () => connect({}, (client) => new Promise((resolve, reject) => {
    const stream = client.makeClientStreamRequest('/percore.Bytes/Sink', same, same, new grpc.Metadata(), {},
      (err, response) => (err ? reject(err) : resolve(response.subarray(2).toString())));
    send(stream, count);
  })),
  down: () => connect({}, async (client) => `${await receive(source(client, count + ' 5'))} messages`),
  both: () => connect({}, async (client) => {
    const stream = chat(client);
    const all = receive(stream);
    send(stream, count);
    return `${await all} messages`;
  }),
  slow: () => connect({}, async (client) => {
    const n = await receive(source(client, '512 16384'), (n) => (n === 1 || n === 200 ? sleep(pause) : null));
    return `${n} messages`;
  }),
  cancel: () => connect({}, async (client) => {
    const codes = [];
    for (let i = 0; i < Math.max(Math.floor(count / 1000), 5); i++) {
      const opened = [];
      const calls = Array.from({ length: 50 }, () => unaryCall(client, 'Wait', small, {}, new grpc.Metadata(), (call) => opened.push(call)));
      await sleep(0.001);
      opened.forEach((call) => call.cancel());
      codes.push(...(await Promise.all(calls)).map((got) => got.code));
      const stream = source(client, '1000000 100');
      await receive(stream, (n) => { if (n === 3) stream.cancel(); }).catch(() => {});
    }
    codes.push((await unaryCall(client, 'Echo', small)).code);
    return tally(codes);
  }),
  deadline: () => connect({}, async (client) => {
    const calls = Array.from({ length: 100 }, () => unaryCall(client, 'Wait', small, { deadline: Date.now() + 100 }));
    const codes = (await Promise.all(calls)).map((got) => got.code);
    codes.push((await unaryCall(client, 'Echo', small)).code);
    return tally(codes);
  }),
  big: () => connect({}, async (client) => {
    const m = message(Buffer.alloc(8 << 20));
    let n = 0;
    for (let i = 0; i < 3; i++) n += (await unaryCall(client, 'Echo', m)).response.equals(m);
    return `${n} the same, then ${(await unaryCall(client, 'Echo', message(Buffer.alloc(17 << 20)))).code}`;
  }),
  status: () => connect({}, async (client) => {
    const got = await unaryCall(client, 'Echo', message(Buffer.from('fail')));
    return `${got.code} ${got.details}`;
  }),
  metadata: () => connect({}, async (client) => {
    const sent = new grpc.Metadata();
    for (let i = 0; i < 50; i++) sent.set('x-field-' + i, 'v'.repeat(100));
    sent.set('x-data-bin', Buffer.from(Array.from({ length: 256 }, (_, i) => i)));
    const { header, trailer } = await unaryCall(client, 'Echo', small, {}, sent);
    const back = (md) => Object.keys(sent.getMap()).filter((k) => Buffer.from(md.get(k)[0] || '').equals(Buffer.from(sent.get(k)[0]))).length;
    return `${back(header)} in the header, ${back(trailer)} in the trailer`;
  }),
  keepalive: () => pinging(200, Math.max(pause, 0.7)),
  toomanypings: () => pinging(10, 20),
});
