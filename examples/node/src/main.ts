// A producer and a consumer in TypeScript, from the contract alone.
//
//   node build/main.js produce TUBE COUNT
//   node build/main.js consume TUBE COUNT
//   node build/main.js conformance
//
// The client is in client.ts. The environment variable TASKRAFT_TARGET has the addresses of the nodes.

import { Client, Subscription } from "./client";
import { conform } from "./conformance";

async function produce(client: Client, tube: string, count: number): Promise<void> {
  for (let number = 0; number < count; number += 1) {
    const answer = await client.put({ tube, tasks: [{ payload: Buffer.from(`task ${number}`) }] });
    for (const item of answer.errors) throw new Error(`task ${number} was refused: ${item.error?.message}`);
    console.log(`put ${answer.task_ids[0]}`);
  }
}

async function consume(client: Client, tube: string, count: number): Promise<void> {
  const subscription = new Subscription(client, tube, 10);
  for (let done = 0; done < count; ) {
    const task = await subscription.next(60_000);
    if (!task) continue;
    console.log(`took ${task.id}, attempt ${task.attempt}: ${task.spec?.payload}`);
    for (const item of await subscription.acknowledge([task.token])) {
      console.log(`the lease ended before the work: ${item.error?.message}`);
    }
    done += 1;
  }
  await subscription.close();
}

async function main(): Promise<void> {
  const [command, tube = "", count = ""] = process.argv.slice(2);
  const client = new Client();
  try {
    if (command === "conformance") await conform(client);
    else if (command === "produce" && tube && Number(count)) await produce(client, tube, Number(count));
    else if (command === "consume" && tube && Number(count)) await consume(client, tube, Number(count));
    else throw new Error("usage: main.js produce|consume TUBE COUNT, or conformance");
  } catch (error) {
    console.error(`error: ${error instanceof Error ? error.message : error}`);
    process.exitCode = 1;
  } finally {
    client.close();
  }
}

void main();
