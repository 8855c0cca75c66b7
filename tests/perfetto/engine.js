// Runs Perfetto's own trace_processor (the WebAssembly build inside a Perfetto UI) under Node.
// Requests of its RPC protocol arrive on stdin as raw bytes, replies leave on stdout.
"use strict";

const fs = require("fs");
const path = require("path");

const folder = process.argv[2];

class FileRequest {
  open(method, name) {
    this.path = path.join(folder, name);
  }
  send() {
    this.response = new Uint8Array(fs.readFileSync(this.path)).buffer;
  }
}

// The bundle is a web worker: it wants a worker's globals, and must not see Node's `process`.
const worker = { location: { href: "" } };
const globals = {
  self: worker,
  process: undefined,
  console: { log: console.error, warn: console.error, error: console.error },
  WorkerGlobalScope: class {},
  XMLHttpRequest: FileRequest,
};
const bundle = fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8");
new Function(...Object.keys(globals), bundle)(...Object.values(globals));

// Its set-up ends in a promise that is kept by now.
setImmediate(() => {
  const port = { postMessage: (reply) => writeAll(Buffer.from(reply)), onmessage: null };
  worker.onmessage({ data: port });
  process.stdin.on("data", (bytes) => port.onmessage({ data: new Uint8Array(bytes) }));
});

function writeAll(bytes) {
  for (let at = 0; at < bytes.length; ) {
    try {
      at += fs.writeSync(1, bytes, at);
    } catch (error) {
      if (error.code !== "EAGAIN") throw error;
    }
  }
}
