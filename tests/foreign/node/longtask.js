// Take one task from a stream, work on it in silence, and acknowledge it on the stream, with only the proto files.
// Usage: node longtask.js HOST:PORT TUBE WORK_MS KEEPALIVE_MS. A keepalive of 0 keeps all options of the channel at
// their defaults. Prints its observations as one JSON object.

import path from "node:path";
import { setTimeout as work } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import grpc from "@grpc/grpc-js";
import protoLoader from "@grpc/proto-loader";

const here = path.dirname(fileURLToPath(import.meta.url));
const contract = path.join(here, "../../../proto");
const deadlineMs = 20_000;

const { taskraft } = grpc.loadPackageDefinition(
  protoLoader.loadSync(["taskraft/v1/task_service.proto", "taskraft/v1/tube_service.proto"], {
    longs: String,
    enums: String,
    defaults: true,
    keepCase: true,
    includeDirs: [contract],
  }),
);

const [address, tube, workMs, keepaliveMs] = process.argv.slice(2);
const options =
  keepaliveMs === "0"
    ? {}
    : { "grpc.keepalive_time_ms": Number(keepaliveMs), "grpc.keepalive_permit_without_calls": 1 };
const credentials = grpc.credentials.createInsecure();
const tasks = new taskraft.v1.TaskService(address, credentials, options);
const tubes = new taskraft.v1.TubeService(address, credentials, options);

/** Call a unary method; the answer or the error of gRPC. */
function call(client, method, request) {
  const limits = { deadline: Date.now() + deadlineMs };
  return promisify((done) => client[method](request, new grpc.Metadata(), limits, done))();
}

/** Work on one task; rejects if the stream ends before the acknowledgement is confirmed. */
function consume() {
  return new Promise((resolve, reject) => {
    const stream = tasks.Subscribe();
    const seen = {};
    stream.on("error", reject);
    stream.on("end", () => reject(new Error("the stream has ended")));
    stream.on("data", async (answer) => {
      for (const task of answer.tasks) {
        seen.payload = task.spec.payload.toString();
        await work(Number(workMs));
        stream.write({ request_id: `${tube}-ack`, settlements: [{ tokens: [task.token], ack: {} }] });
      }
      for (const settled of answer.settled) {
        seen.settled = settled.request_id;
        seen.errors = settled.errors.length;
        stream.removeAllListeners("error"); // the library reports an early end of a stream as an error
        stream.on("error", () => {});
        stream.cancel();
        resolve(seen);
      }
    });
    stream.write({ open: { sources: [{ tube }] }, credit: { tasks: 1 } });
  });
}

await call(tubes, "CreateTube", { request_id: `${tube}-create`, tube: { name: tube, kind: "FIFO" } });
await call(tasks, "PutTasks", { request_id: `${tube}-put`, tube, tasks: [{ payload: Buffer.from("long") }] });
console.log(JSON.stringify(await consume()));
tasks.close();
tubes.close();
