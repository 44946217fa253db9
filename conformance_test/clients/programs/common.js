// What the programs for Node share.

// message returns a google.protobuf.BytesValue.
exports.message = (value) => {
  const head = [0x0a];
  let n = value.length;
  for (; n > 127; n >>>= 7) head.push((n & 127) | 128);
  return Buffer.concat([Buffer.from([...head, n]), value]);
};

exports.sleep = (seconds) => new Promise((resolve) => setTimeout(resolve, 1000 * seconds));

// tally counts results: "100 CANCELLED, 1 OK".
exports.tally = (results) => {
  const counts = {};
  for (const r of results) counts[r] = (counts[r] || 0) + 1;
  return Object.keys(counts).sort().map((r) => `${counts[r]} ${r}`).join(', ');
};

// main runs scenarios and prints their results.
exports.main = async (names, scenarios) => {
  for (const scenario of names) {
    const start = Date.now();
    let result;
    try {
      result = await scenarios[scenario]();
    } catch (err) {
      result = String(err);
    }
    const line = JSON.stringify({ scenario, result, seconds: (Date.now() - start) / 1000 });
    await new Promise((resolve) => process.stdout.write(line + '\n', resolve));
  }
  process.exit(0);
};
