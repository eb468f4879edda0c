import { randomUUID } from "node:crypto";
import { EventEmitter, on } from "node:events";
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

import * as grpc from "@grpc/grpc-js";
import * as protoLoader from "@grpc/proto-loader";
import path from "node:path";

import type { ErrorInfo__Output } from "./stubs/google/rpc/ErrorInfo";
import type { RetryInfo__Output } from "./stubs/google/rpc/RetryInfo";
import type { Status__Output } from "./stubs/google/rpc/Status";
import type { ProtoGrpcType as SessionTypes } from "./stubs/session_service";
import type { ProtoGrpcType as TaskTypes } from "./stubs/task_service";
import type { Error__Output } from "./stubs/taskraft/v1/Error";
import type { ItemError__Output } from "./stubs/taskraft/v1/ItemError";
import type { PutTasksRequest } from "./stubs/taskraft/v1/PutTasksRequest";
import type { PutTasksResponse__Output } from "./stubs/taskraft/v1/PutTasksResponse";
import type { Settlement } from "./stubs/taskraft/v1/Settlement";
import type { SettleTasksResponse__Output } from "./stubs/taskraft/v1/SettleTasksResponse";
import type { SubscribeRequest } from "./stubs/taskraft/v1/SubscribeRequest";
import type { SubscribeResponse__Output } from "./stubs/taskraft/v1/SubscribeResponse";
import type { TakeTasksRequest } from "./stubs/taskraft/v1/TakeTasksRequest";
import type { TakeTasksResponse__Output } from "./stubs/taskraft/v1/TakeTasksResponse";
import type { Task__Output } from "./stubs/taskraft/v1/Task";

const attemptMs = 5_000;
const callMs = 20_000;
const pauseMs = 50;
const pauseMsMax = 1_000;
/** Usual time in ms for which leases outlive a lost stream. */
const sessionTtrMsUsual = "10000";
/** Reasons of `Settled.error` after which the same message can succeed. */
const settledAgain = ["OVERLOADED", "DRAINING", "NO_LEADER", "NOT_LEADER", "COMMIT_UNKNOWN"];
const settledPauseMs = 200;

const folder = path.join(__dirname, "..");
const contract = path.join(folder, "../../proto");
// Numbers of 64 bits are strings: a JavaScript number has 53 bits, and lease tokens have more.
const loading = {
  longs: String, enums: String, defaults: true, keepCase: true, includeDirs: [contract, folder],
};
const load = (file: string) => grpc.loadPackageDefinition(protoLoader.loadSync(file, loading)) as unknown;
const { taskraft } = load("taskraft/v1/task_service.proto") as TaskTypes;
const sessions = (load("taskraft/v1/session_service.proto") as SessionTypes).taskraft;
const details = protoLoader.loadSync("error_details.proto", loading);
const decode = <T>(name: string, bytes: Buffer) =>
  (details[name] as protoLoader.MessageTypeDefinition<object, T & object>).deserialize(bytes);

/** An error of the server: the gRPC code, and the reason and its variables for programs. */
export class Refusal extends Error {
  constructor(
    readonly code: string,
    readonly reason: string,
    message: string,
    readonly metadata: Record<string, string>,
    /** Wait of the server before a retry, in ms; 0: a retry cannot succeed. */
    readonly retryMs = 0,
  ) {
    super(message);
  }
}

/** Read the ErrorInfo of a failed call. A lost connection has no ErrorInfo, so its reason is empty. */
function refusalOf(error: grpc.ServiceError): Refusal {
  const [trailer] = error.metadata?.get("grpc-status-details-bin") ?? [];
  let info: Partial<ErrorInfo__Output> = {};
  let retryMs = 0;
  if (trailer instanceof Buffer) {
    const status = decode<Status__Output>("google.rpc.Status", trailer);
    for (const detail of status.details as unknown as { type_url: string; value: Buffer }[]) {
      if (detail.type_url.endsWith("/google.rpc.ErrorInfo")) {
        info = decode<ErrorInfo__Output>("google.rpc.ErrorInfo", detail.value);
      } else if (detail.type_url.endsWith("/google.rpc.RetryInfo")) {
        const delay = decode<RetryInfo__Output>("google.rpc.RetryInfo", detail.value).retry_delay;
        retryMs = Number(delay?.seconds ?? 0) * 1_000 + (delay?.nanos ?? 0) / 1e6;
      }
    }
  }
  const code = grpc.status[error.code] ?? "UNKNOWN";
  return new Refusal(code, info.reason ?? "", error.details, info.metadata ?? {}, retryMs);
}

/**
 * Return the wait of the server, or a pause that doubles with each failure. The random part keeps clients from
 * calling a restarted cluster at the same time.
 */
function pauseAfter(refusal: Refusal | undefined, failures: number): number {
  if (refusal?.retryMs) return refusal.retryMs;
  return Math.min(pauseMsMax, pauseMs * 2 ** Math.min(failures, 8)) * (0.5 + Math.random() / 2);
}

type Node = ReturnType<typeof connect>;
type Done<A> = (error: grpc.ServiceError | null, answer?: A) => void;

function connect(address: string, credentials: grpc.ChannelCredentials) {
  const options = {
    "grpc.max_receive_message_length": 32 * 1024 * 1024,
    // A silent stream lives as long as its connection; pings find a lost connection.
    "grpc.keepalive_time_ms": 20_000,
    "grpc.keepalive_timeout_ms": 5_000,
    "grpc.initial_reconnect_backoff_ms": 100,
    "grpc.max_reconnect_backoff_ms": 1_000,
  };
  return {
    tasks: new taskraft.v1.TaskService(address, credentials, options),
    sessions: new sessions.v1.SessionService(address, credentials, options),
  };
}

/** Calls one node at a time, and goes to the next node when a connection is lost. */
export class Client {
  readonly #nodes: Node[];
  readonly metadata = new grpc.Metadata();
  #place = 0;

  /** Connect to the nodes of TASKRAFT_TARGET. TASKRAFT_CA_FILE turns TLS on; TASKRAFT_TOKEN is a token. */
  constructor() {
    const { TASKRAFT_TARGET = "127.0.0.1:7401", TASKRAFT_CA_FILE, TASKRAFT_TOKEN } = process.env;
    const credentials = TASKRAFT_CA_FILE
      ? grpc.credentials.createSsl(readFileSync(TASKRAFT_CA_FILE))
      : grpc.credentials.createInsecure();
    this.#nodes = TASKRAFT_TARGET.split(",").map((address) => connect(address, credentials));
    if (TASKRAFT_TOKEN) this.metadata.set("authorization", `Bearer ${TASKRAFT_TOKEN}`);
  }

  close(): void {
    for (const node of this.#nodes) {
      node.tasks.close();
      node.sessions.close();
    }
  }

  get node(): Node {
    return this.#nodes[this.#place % this.#nodes.length]!;
  }

  /** Make the next call use another node, unless another call has left this node already. */
  leave(node: Node): void {
    if (node === this.node) this.#place += 1;
  }

  /**
   * Execute one request. UNAVAILABLE and a time-out do not tell whether the request was executed, so they are
   * retried with the same request_id, on another node.
   */
  async call<A>(waitMs: number, method: (node: Node, options: grpc.CallOptions, done: Done<A>) => void): Promise<A> {
    const end = Date.now() + callMs + waitMs;
    for (let failures = 0; ; failures += 1) {
      const node = this.node;
      const options = { deadline: Date.now() + attemptMs + waitMs };
      try {
        return await new Promise<A>((resolve, reject) => {
          method(node, options, (error, answer) => (error ? reject(error) : resolve(answer as A)));
        });
      } catch (thrown) {
        const error = thrown as grpc.ServiceError;
        const isLost = error.code === grpc.status.UNAVAILABLE || error.code === grpc.status.DEADLINE_EXCEEDED;
        const refusal = refusalOf(error);
        if ((!isLost && !refusal.retryMs) || Date.now() > end) throw refusal;
        this.leave(node);
        await sleep(pauseAfter(refusal, failures));
      }
    }
  }

  /** Put tasks. A request without a request_id gets a random one. */
  put(request: PutTasksRequest): Promise<PutTasksResponse__Output> {
    const keyed = { ...request, request_id: request.request_id || randomUUID() };
    return this.call(0, (node, options, done) => node.tasks.PutTasks(keyed, this.metadata, options, done));
  }

  /** Take tasks, and wait for the first one as long as the request says. */
  take(request: TakeTasksRequest): Promise<TakeTasksResponse__Output> {
    const keyed = { ...request, request_id: randomUUID() };
    const waitMs = Number(request.wait_ms ?? 0);
    return this.call(waitMs, (node, options, done) => node.tasks.TakeTasks(keyed, this.metadata, options, done));
  }

  /**
   * Settle leases; the answer lists the refused leases. LEASE_STALE means that another consumer may have the task
   * now, so its result must not be used.
   */
  settle(settlement: Settlement): Promise<SettleTasksResponse__Output> {
    const keyed = { request_id: randomUUID(), settlements: [settlement] };
    return this.call(0, (node, options, done) => node.tasks.SettleTasks(keyed, this.metadata, options, done));
  }
}

type Stream = grpc.ClientDuplexStream<SubscribeRequest, SubscribeResponse__Output>;

interface Unanswered {
  message: SubscribeRequest;
  tokens: string[];
  resolve: (errors: ItemError__Output[]) => void;
  reject: (error: Error) => void;
}

/**
 * Takes tasks from a stream. A lost stream is opened again with its session, so that the leases stay valid.
 * At most `credit` tasks are sent that are not settled.
 */
export class Subscription {
  readonly #arrivals = new EventEmitter();
  #tasks: Task__Output[] = [];
  /** Tokens of the tasks that were sent, and whether a further task was allowed. */
  readonly #held = new Map<string, boolean>();
  readonly #unanswered = new Map<string, Unanswered>();
  #session = "";
  #call: Stream | undefined;
  /** Set while the stream is open. */
  #stream: Stream | undefined;
  #failures = 0;
  #refusal: Refusal | undefined;
  #isClosed = false;

  constructor(
    readonly client: Client,
    readonly tube: string,
    /** Number of tasks that the server may still send. */
    private credit: number,
    private readonly sessionTtrMs = sessionTtrMsUsual,
  ) {
    this.#open();
  }

  #open(): void {
    const node = this.client.node;
    const stream = node.tasks.Subscribe(this.client.metadata);
    this.#call = stream;
    stream.on("data", (answer: SubscribeResponse__Output) => this.#read(answer, stream));
    let hasEnded = false;
    const again = (error?: grpc.ServiceError) => {
      if (hasEnded || this.#isClosed) return;
      hasEnded = true;
      this.#stream = undefined;
      const refusal = error && refusalOf(error);
      if (refusal?.reason === "SESSION_NOT_FOUND") {
        this.#forgetSession();
      } else if (refusal?.reason && !refusal.retryMs) {
        // A new stream would be refused too, for example because all tubes of the stream were dropped.
        this.#refusal = refusal;
        this.#arrivals.emit("task");
        return;
      }
      // The server said go_away, or the connection is lost: go on with another node.
      this.client.leave(node);
      setTimeout(() => this.#isClosed || this.#open(), pauseAfter(refusal, this.#failures));
      this.#failures += 1;
    };
    stream.on("error", again);
    stream.on("end", () => again());
    // The credit follows when the stream is open: if this message or its answer is lost, no task is lost with it.
    stream.write({
      open: { sources: [{ tube: this.tube }], session_id: this.#session, session_ttr_ms: this.sessionTtrMs },
    });
  }

  /** Drop the tasks that nobody works on: their leases have ended, and other consumers get them. */
  #forgetSession(): void {
    this.#session = "";
    for (const { token } of this.#tasks) this.#held.delete(token);
    this.credit += this.#tasks.length;
    this.#tasks = [];
  }

  #read(answer: SubscribeResponse__Output, stream: Stream): void {
    if (answer.opened) {
      this.#session = answer.opened.session_id;
      this.#failures = 0;
      this.#stream = stream;
      this.#resume(answer.opened.held, answer.opened.held_continues);
    }
    for (const { token } of answer.tasks) this.#held.set(token, false);
    this.credit -= answer.tasks.length;
    for (const settled of answer.settled) this.#settled(settled.request_id, settled.errors, settled.error);
    this.#tasks.push(...answer.tasks);
    if (answer.tasks.length) this.#arrivals.emit("task");
  }

  /**
   * Release the tasks that were in transit when a stream was cut, allow the tasks that the server may still send,
   * and repeat the settlements without an answer. A long list of tasks comes in several messages.
   */
  #resume(held: Task__Output[], continues: boolean): void {
    const lost = held.map(({ token }) => token).filter((token) => !this.#held.has(token));
    if (lost.length) {
      const forget = () => undefined;
      this.#keep({ tokens: lost, release: { delay_ms: "0", uncounted: true } }, lost, forget, forget);
    }
    if (continues) return;
    if (this.credit) this.#stream?.write({ credit: { tasks: this.credit } });
    for (const { message } of this.#unanswered.values()) this.#stream?.write(message);
  }

  /** Return the key of a message that is repeated until it is answered. With the key, it has one effect. */
  #keep(settlement: Settlement, tokens: string[], resolve: Unanswered["resolve"], reject: Unanswered["reject"]): string {
    const key = randomUUID();
    const message = { request_id: key, idempotency_key: key, settlements: [settlement] };
    this.#unanswered.set(key, { message, tokens, resolve, reject });
    return key;
  }

  #send(key: string): void {
    const unanswered = this.#unanswered.get(key);
    if (unanswered) this.#stream?.write(unanswered.message);
  }

  #settled(key: string, errors: ItemError__Output[], error: Error__Output | null): void {
    const unanswered = this.#unanswered.get(key);
    if (!unanswered) return;
    if (error && settledAgain.includes(error.reason)) {
      setTimeout(() => this.#send(key), settledPauseMs);
      return;
    }
    this.#unanswered.delete(key);
    if (error) {
      // The message was refused as a whole: the tasks are still leased.
      unanswered.reject(new Refusal("", error.reason, error.message, error.metadata));
      return;
    }
    for (const token of unanswered.tokens) this.#held.delete(token);
    unanswered.resolve(errors);
  }

  /** Return the next task, or undefined after the time; throw a Refusal, for example if the tube was dropped. */
  async next(waitMs: number): Promise<Task__Output | undefined> {
    if (!this.#tasks.length && !this.#refusal) {
      try {
        for await (const _ of on(this.#arrivals, "task", { signal: AbortSignal.timeout(waitMs) })) break;
      } catch {
        return undefined;
      }
    }
    const task = this.#tasks.shift();
    if (!task && this.#refusal) throw this.#refusal;
    return task;
  }

  /**
   * Acknowledge tasks on the stream, allow as many further tasks, and return the refused leases. Throw a Refusal if
   * the whole message was refused.
   */
  acknowledge(tokens: string[]): Promise<ItemError__Output[]> {
    // Each task allows one further task, also if it is settled twice.
    const allowing = tokens.filter((token) => this.#held.get(token) === false);
    for (const token of allowing) this.#held.set(token, true);
    this.credit += allowing.length;
    let timer: NodeJS.Timeout;
    const answered = new Promise<ItemError__Output[]>((resolve, reject) => {
      const key = this.#keep({ tokens, ack: {} }, tokens, resolve, reject);
      timer = setTimeout(() => {
        this.#unanswered.delete(key);
        reject(new Error("the settlement was not answered, and may still take effect"));
      }, callMs);
      this.#send(key);
      if (allowing.length) this.#stream?.write({ credit: { tasks: allowing.length } });
    });
    return answered.finally(() => clearTimeout(timer));
  }

  /** End the stream and its session; tasks that are still leased go to other consumers at once. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#call?.cancel();
    if (!this.#session) return;
    const request = { request_id: randomUUID(), session_id: this.#session, uncounted: true };
    await this.client.call(0, (node, options, done) =>
      node.sessions.CloseSession(request, this.client.metadata, options, done),
    );
  }
}
