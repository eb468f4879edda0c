// Answer the commands of `taskraft conformance`: one JSON line for each line of the standard input.

import { createInterface } from "node:readline";

import { Client, Refusal, Subscription } from "./client";
import type { ItemError__Output } from "./stubs/taskraft/v1/ItemError";
import type { Task__Output } from "./stubs/taskraft/v1/Task";

/** A command: numbers of 64 bits are strings, and bytes are Base64. */
interface Command {
  call: string;
  tube: string;
  tasks: { payload: string; headers?: Record<string, string>; priority?: string; delay_ms?: string }[];
  request_id?: string;
  client_id?: string;
  tasks_max: number;
  wait_ms: string;
  ttr_ms?: string;
  action: "ack" | "release" | "bury" | "touch";
  tokens: string[];
  delay_ms?: string;
  increment_ms?: string;
  credit: number;
  session_ttr_ms?: string;
}

const fromBase64 = (texts: Record<string, string> = {}) =>
  Object.fromEntries(Object.entries(texts).map(([key, text]) => [key, Buffer.from(text, "base64")]));
const toBase64 = (contents: Record<string, Buffer> = {}) =>
  Object.fromEntries(Object.entries(contents).map(([key, content]) => [key, content.toString("base64")]));
const items = (errors: ItemError__Output[]) => errors.map(({ item, error }) => ({ item, reason: error?.reason }));

function shown(task: Task__Output | undefined) {
  if (!task) return null;
  const { id, token, attempt, spec } = task;
  return { id, token, attempt, payload: spec!.payload.toString("base64"), headers: toBase64(spec!.headers) };
}

export async function conform(client: Client): Promise<void> {
  let subscription: Subscription;

  async function execute(command: Command): Promise<object> {
    const { call, tube, tokens } = command;
    switch (call) {
      case "put": {
        const tasks = command.tasks.map((task) => ({
          ...task,
          payload: Buffer.from(task.payload, "base64"),
          headers: fromBase64(task.headers),
        }));
        const { request_id, client_id } = command;
        const answer = await client.put({ tube, tasks, request_id, client_id });
        return { task_ids: answer.task_ids, errors: items(answer.errors) };
      }
      case "take": {
        const { tasks_max, wait_ms, ttr_ms } = command;
        const answer = await client.take({ sources: [{ tube }], tasks_max, wait_ms, ttr_ms });
        return { tasks: answer.tasks.map(shown) };
      }
      case "settle": {
        const { delay_ms, increment_ms } = command;
        const actions = { ack: {}, release: { delay_ms }, bury: {}, touch: { increment_ms } };
        const answer = await client.settle({ tokens, [command.action]: actions[command.action] });
        return { errors: items(answer.errors) };
      }
      case "subscribe":
        subscription = new Subscription(client, tube, command.credit, command.session_ttr_ms);
        return {};
      case "next":
        return { task: shown(await subscription.next(Number(command.wait_ms))) };
      case "stream_ack":
        return { errors: items(await subscription.acknowledge(tokens)) };
      case "unsubscribe":
        await subscription.close();
        return {};
      default:
        throw new Error(`there is no command "${call}"`);
    }
  }

  for await (const line of createInterface({ input: process.stdin })) {
    let answer: object;
    try {
      answer = await execute(JSON.parse(line) as Command);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      const { code, reason, message, metadata } = error;
      answer = { error: { code, reason, message, metadata } };
    }
    console.log(JSON.stringify(answer));
  }
}
