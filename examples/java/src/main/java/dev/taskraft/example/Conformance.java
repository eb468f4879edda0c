package dev.taskraft.example;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.protobuf.ByteString;
import dev.taskraft.v1.ItemError;
import dev.taskraft.v1.PutTasksRequest;
import dev.taskraft.v1.PutTasksResponse;
import dev.taskraft.v1.Settlement;
import dev.taskraft.v1.TakeSource;
import dev.taskraft.v1.TakeTasksRequest;
import dev.taskraft.v1.Task;
import dev.taskraft.v1.TaskSpec;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Answers the commands of {@code taskraft conformance}: one JSON line for each line of the standard input. */
final class Conformance {
  /** A command: numbers of 64 bits are texts, and bytes are Base64. */
  private static final class Command {
    String call;
    String tube;
    List<CommandTask> tasks;
    String request_id = "";
    String client_id = "";
    int tasks_max;
    String wait_ms;
    String ttr_ms;
    String action;
    List<Long> tokens;
    String delay_ms;
    String increment_ms;
    int credit;
    long session_ttr_ms = Client.SESSION_TTR_MS;
  }

  private static final class CommandTask {
    String payload;
    Map<String, String> headers = Map.of();
    String priority;
    String delay_ms;
  }

  private final Gson gson = new GsonBuilder().serializeNulls().create();
  private final Client client;
  private Client.Subscription subscription;

  Conformance(Client client) {
    this.client = client;
  }

  void run() throws Exception {
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      Map<String, ?> answer;
      try {
        answer = execute(gson.fromJson(line, Command.class));
      } catch (Client.Refusal refusal) {
        answer =
            Map.of(
                "error",
                Map.of(
                    "code", refusal.code,
                    "reason", refusal.reason,
                    "message", String.valueOf(refusal.getMessage()),
                    "metadata", refusal.metadata));
      }
      System.out.println(gson.toJson(answer));
    }
  }

  private Map<String, ?> execute(Command command) throws Exception {
    switch (command.call) {
      case "put":
        return put(command);
      case "take":
        return take(command);
      case "settle":
        return Map.of("errors", items(client.settle(settlement(command)).getErrorsList()));
      case "subscribe":
        subscription = client.subscribe(command.tube, command.credit, command.session_ttr_ms);
        return Map.of();
      case "next":
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("task", shown(subscription.next(Long.parseLong(command.wait_ms))));
        return answer;
      case "stream_ack":
        return Map.of("errors", items(subscription.acknowledge(command.tokens)));
      case "unsubscribe":
        subscription.close();
        return Map.of();
      default:
        throw new IllegalArgumentException("there is no command " + command.call);
    }
  }

  private Map<String, ?> put(Command command) throws InterruptedException {
    PutTasksRequest.Builder request =
        PutTasksRequest.newBuilder()
            .setTube(command.tube)
            .setRequestId(command.request_id)
            .setClientId(command.client_id);
    for (CommandTask task : command.tasks) {
      TaskSpec.Builder spec = request.addTasksBuilder().setPayload(bytes(task.payload));
      task.headers.forEach((key, text) -> spec.putHeaders(key, bytes(text)));
      if (task.priority != null) {
        spec.setPriority(Long.parseLong(task.priority));
      }
      if (task.delay_ms != null) {
        spec.setDelayMs(Long.parseLong(task.delay_ms));
      }
    }
    PutTasksResponse answer = client.put(request.build());
    List<String> ids = answer.getTaskIdsList().stream().map(String::valueOf).toList();
    return Map.of("task_ids", ids, "errors", items(answer.getErrorsList()));
  }

  private Map<String, ?> take(Command command) throws InterruptedException {
    TakeTasksRequest.Builder request =
        TakeTasksRequest.newBuilder()
            .addSources(TakeSource.newBuilder().setTube(command.tube))
            .setTasksMax(command.tasks_max)
            .setWaitMs(Long.parseLong(command.wait_ms));
    if (command.ttr_ms != null) {
      request.setTtrMs(Long.parseLong(command.ttr_ms));
    }
    List<Map<String, ?>> tasks = new ArrayList<>();
    client.take(request.build()).getTasksList().forEach(task -> tasks.add(shown(task)));
    return Map.of("tasks", tasks);
  }

  private static Settlement settlement(Command command) {
    Settlement.Builder settlement = Settlement.newBuilder().addAllTokens(command.tokens);
    switch (command.action) {
      case "ack" -> settlement.getAckBuilder();
      case "bury" -> settlement.getBuryBuilder();
      case "touch" -> settlement.getTouchBuilder().setIncrementMs(Long.parseLong(command.increment_ms));
      case "release" -> settlement.getReleaseBuilder().setDelayMs(Long.parseLong(command.delay_ms));
      default -> throw new IllegalArgumentException("there is no action " + command.action);
    }
    return settlement.build();
  }

  private static ByteString bytes(String text) {
    return ByteString.copyFrom(Base64.getDecoder().decode(text));
  }

  private static String text(ByteString bytes) {
    return Base64.getEncoder().encodeToString(bytes.toByteArray());
  }

  private static List<Map<String, ?>> items(List<ItemError> errors) {
    List<Map<String, ?>> items = new ArrayList<>();
    errors.forEach(one -> items.add(Map.of("item", one.getItem(), "reason", one.getError().getReason().name())));
    return items;
  }

  private static Map<String, ?> shown(Task task) {
    if (task == null) {
      return null;
    }
    Map<String, String> headers = new LinkedHashMap<>();
    task.getSpec().getHeadersMap().forEach((key, content) -> headers.put(key, text(content)));
    return Map.of(
        "id", String.valueOf(task.getId()),
        "token", String.valueOf(task.getToken()),
        "attempt", task.getAttempt(),
        "payload", text(task.getSpec().getPayload()),
        "headers", headers);
  }
}
