// Put, take, acknowledge, provoke a typed error and subscribe, with only the proto files.
// Usage: node client.js HOST:PORT TUBE. Prints its observations as one JSON object.

import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import grpc from "@grpc/grpc-js";
import protoLoader from "@grpc/proto-loader";

const here = path.dirname(fileURLToPath(import.meta.url));
const contract = path.join(here, "../../../proto");
const deadlineMs = 10_000;

const load = (files, includeDirs) =>
  grpc.loadPackageDefinition(
    protoLoader.loadSync(files, { longs: String, enums: String, defaults: true, keepCase: true, includeDirs }),
  );
const { taskraft } = load(["taskraft/v1/task_service.proto", "taskraft/v1/tube_service.proto"], [contract]);
const details = protoLoader.loadSync("error_details.proto", { includeDirs: [here] });
const decodeStatus = details["google.rpc.Status"].deserialize;
const decodeErrorInfo = details["google.rpc.ErrorInfo"].deserialize;

const [address, tube] = process.argv.slice(2);
const credentials = grpc.credentials.createInsecure();
const tasks = new taskraft.v1.TaskService(address, credentials);
const tubes = new taskraft.v1.TubeService(address, credentials);

/** Call a unary method; the answer or the error of gRPC. */
function call(client, method, request) {
  const options = { deadline: Date.now() + deadlineMs };
  return promisify((done) => client[method](request, new grpc.Metadata(), options, done))();
}

/** Read what a refusal says to programs. */
function readRefusal(error) {
  const [trailer] = error.metadata.get("grpc-status-details-bin");
  const status = decodeStatus(trailer);
  const info = status.details.find((detail) => detail.type_url.endsWith("/google.rpc.ErrorInfo"));
  const { reason, domain, metadata } = decodeErrorInfo(info.value);
  return { code: grpc.status[error.code], reason, domain, tube: metadata.tube };
}

/** Take one task from the stream and acknowledge it there. */
function subscribe() {
  return new Promise((resolve, reject) => {
    const stream = tasks.Subscribe({ deadline: Date.now() + deadlineMs });
    const seen = {};
    stream.on("error", reject);
    stream.on("data", (answer) => {
      for (const task of answer.tasks) {
        seen.task = [task.id, task.spec.payload.toString()];
        stream.write({ request_id: `${tube}-stream`, settlements: [{ tokens: [task.token], ack: {} }] });
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
    stream.write({ open: { sources: [{ tube }] } });
    stream.write({ credit: { tasks: 1 } });
  });
}

const seen = {};
await call(tubes, "CreateTube", { request_id: `${tube}-create`, tube: { name: tube, kind: "FIFOTTL" } });
const specs = ["first", "second", "third"].map((text) => ({ payload: Buffer.from(text) }));
const put = { request_id: `${tube}-put`, tube, tasks: specs };
seen.put = (await call(tasks, "PutTasks", put)).task_ids;
seen.repeated = (await call(tasks, "PutTasks", put)).task_ids;

const take = { request_id: `${tube}-take`, sources: [{ tube }], tasks_max: 2, wait_ms: 5_000 };
const taken = (await call(tasks, "TakeTasks", take)).tasks;
seen.taken = taken.map((task) => [task.id, task.spec.payload.toString()]);

const settlements = [{ tokens: taken.map((task) => task.token), ack: {} }];
const settled = await call(tasks, "SettleTasks", { request_id: `${tube}-ack`, settlements });
seen.refused = settled.errors.length;
const late = await call(tasks, "SettleTasks", { request_id: `${tube}-late`, settlements });
seen.late = late.errors.map((item) => [item.item, item.error.reason]);

seen.stream = await subscribe();
try {
  await call(tasks, "PutTasks", { request_id: `${tube}-nowhere`, tube: `${tube}-nowhere`, tasks: specs });
} catch (error) {
  seen.refusal = readRefusal(error);
}
console.log(JSON.stringify(seen));
tasks.close();
tubes.close();
