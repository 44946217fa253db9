// Node's http2: node http2.js TARGET CA COUNT PAUSE SCENARIO...
const fs = require('fs');
const http2 = require('http2');
const net = require('net');
const { sleep, tally, main } = require('./common.js');

const [target, ca, count, pause] = [process.argv[2], process.argv[3], +process.argv[4], +process.argv[5]];

// connect opens a session and closes it behind what do does.
async function connect(does) {
  const options = ca ? { ca: fs.readFileSync(ca) } : {};
  if (target.startsWith('unix:')) options.createConnection = () => net.connect(target.slice(5));
  const session = http2.connect(target.startsWith('unix:') ? 'http://localhost' : `${ca ? 'https' : 'http'}://${target}`, options);
  session.on('error', () => {});
  try {
    return await does(session);
  } finally {
    session.destroy();
  }
}

// answer resolves with the status and body of a request's answer, and rejects with its error. each may
// return a promise.
async function answer(stream, each = () => {}) {
  const got = { body: [], bytes: 0 };
  stream.on('response', (headers) => { got.status = headers[':status']; });
  for await (const part of stream) {
    got.bytes += part.length;
    if (got.bytes < 1000) got.body.push(part);
    await each(got.bytes);
  }
  if (stream.rstCode) throw new Error(`reset: ${stream.rstCode}`);
  return { ...got, body: Buffer.concat(got.body).toString() };
}

const get = (session, path) => session.request({ ':path': path });
const post = (session, path) => session.request({ ':path': path, ':method': 'POST' });
const hello = (session) => answer(get(session, '/hello')).then((got) => got.body, String);

async function send(stream, part, n) {
  for (let i = 0; i < n; i++) {
    if (!stream.write(part)) await new Promise((resolve) => stream.once('drain', resolve));
    if (i % 16 === 15) await new Promise(setImmediate); // a frame or a few for each part
  }
  stream.end();
}

main(process.argv.slice(6), {
  unary: () => connect(async (session) => {
    const all = [];
    for (let left = count / 4; left > 0; left -= 100) {
      all.push(...await Promise.all(Array.from({ length: Math.min(left, 100) }, () => hello(session))));
    }
    return tally(all);
  }),
  up: () => connect(async (session) => {
    const stream = post(session, '/count');
    send(stream, 'hello', count);
    return `${(await answer(stream)).body} bytes`;
  }),
  down: () => connect(async (session) => `${(await answer(get(session, `/source?${count}+5`))).bytes} bytes`),
  both: () => connect(async (session) => {
    const stream = post(session, '/echo');
    send(stream, 'hello', count);
    return `${(await answer(stream)).bytes} bytes`;
  }),
  slow: () => connect(async (session) => {
    let pauses = 0;
    const got = await answer(get(session, '/source?512+16384'), (bytes) => (bytes > pauses * (3 << 20) ? (pauses++, sleep(pause)) : null));
    return `${got.bytes} bytes`;
  }),
  cancel: () => connect(async (session) => {
    const all = [];
    for (let i = 0; i < Math.max(Math.floor(count / 1000), 5); i++) {
      const streams = Array.from({ length: 50 }, () => get(session, '/wait'));
      await sleep(0.001);
      const ends = streams.map((s) => answer(s).then(() => 'answered', () => 'cancelled'));
      streams.forEach((s) => s.close(http2.constants.NGHTTP2_CANCEL));
      all.push(...await Promise.all(ends));
      const stream = get(session, '/source?1000000+100');
      await answer(stream, () => stream.close(http2.constants.NGHTTP2_CANCEL)).catch(() => {});
    }
    return tally([...all, await hello(session)]);
  }),
  deadline: () => connect(async (session) => {
    const all = Array.from({ length: 100 }, () => {
      const stream = get(session, '/wait');
      stream.setTimeout(100, () => stream.close(http2.constants.NGHTTP2_CANCEL));
      return answer(stream).then(() => 'answered', () => 'late');
    });
    return tally([...await Promise.all(all), await hello(session)]);
  }),
  big: () => connect(async (session) => {
    const stream = post(session, '/count');
    stream.end(Buffer.alloc(8 << 20));
    return `${(await answer(stream)).body} up, ${(await answer(get(session, '/source?1+8388608'))).bytes} down`;
  }),
  refuse: () => connect(async (session) => {
    const stream = post(session, '/refuse');
    stream.on('error', () => {});
    stream.write(Buffer.alloc(1 << 20));
    return new Promise((resolve) => {
      stream.on('response', (headers) => resolve(String(headers[':status'])));
      stream.on('close', () => resolve('no answer'));
    });
  }),
  pings: () => connect(async (session) => {
    let n = 0;
    await new Promise((resolve) => session.once('remoteSettings', resolve));
    for (let i = 0; i < 10; i++) {
      await Promise.all(Array.from({ length: 10 }, () => new Promise((resolve) => session.ping((err) => { n += !err; resolve(); }))));
    }
    return `${n} acknowledged, 1 ${await hello(session)}`;
  }),
});
