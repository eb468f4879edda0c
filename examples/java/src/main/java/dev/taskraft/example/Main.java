package dev.taskraft.example;

import com.google.protobuf.ByteString;
import dev.taskraft.v1.ItemError;
import dev.taskraft.v1.PutTasksRequest;
import dev.taskraft.v1.PutTasksResponse;
import dev.taskraft.v1.Task;
import dev.taskraft.v1.TaskSpec;
import java.util.List;

/**
 * A producer and a consumer in Java, from the contract alone.
 *
 * <pre>
 * java -cp 'target/taskraft-example.jar:target/lib/*' dev.taskraft.example.Main produce TUBE COUNT
 * java -cp 'target/taskraft-example.jar:target/lib/*' dev.taskraft.example.Main consume TUBE COUNT
 * java -cp 'target/taskraft-example.jar:target/lib/*' dev.taskraft.example.Main conformance
 * </pre>
 *
 * <p>The environment variable TASKRAFT_TARGET has the addresses of the nodes.
 */
public final class Main {
  private Main() {}

  private static void produce(Client client, String tube, int count) throws InterruptedException {
    for (int number = 0; number < count; number++) {
      TaskSpec spec = TaskSpec.newBuilder().setPayload(ByteString.copyFromUtf8("task " + number)).build();
      PutTasksResponse answer = client.put(PutTasksRequest.newBuilder().setTube(tube).addTasks(spec).build());
      for (ItemError item : answer.getErrorsList()) {
        throw new IllegalStateException("task " + number + " was refused: " + item.getError().getMessage());
      }
      System.out.println("put " + answer.getTaskIds(0));
    }
  }

  private static void consume(Client client, String tube, int count) throws Exception {
    Client.Subscription subscription = client.subscribe(tube, 10, Client.SESSION_TTR_MS);
    for (int done = 0; done < count; ) {
      Task task = subscription.next(60_000);
      if (task == null) {
        continue;
      }
      System.out.printf(
          "took %d, attempt %d: %s%n", task.getId(), task.getAttempt(), task.getSpec().getPayload().toStringUtf8());
      for (ItemError item : subscription.acknowledge(List.of(task.getToken()))) {
        System.out.println("the lease ended before the work: " + item.getError().getMessage());
      }
      done++;
    }
    subscription.close();
  }

  /** Runs the command of the arguments; an error ends the process with status 1. */
  public static void main(String[] arguments) throws Exception {
    try (Client client = new Client()) {
      if (arguments.length == 1 && arguments[0].equals("conformance")) {
        new Conformance(client).run();
      } else if (arguments.length == 3 && arguments[0].equals("produce")) {
        produce(client, arguments[1], Integer.parseInt(arguments[2]));
      } else if (arguments.length == 3 && arguments[0].equals("consume")) {
        consume(client, arguments[1], Integer.parseInt(arguments[2]));
      } else {
        throw new IllegalArgumentException("usage: produce|consume TUBE COUNT, or conformance");
      }
    }
  }
}
