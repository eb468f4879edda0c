package dev.taskraft.example;

import com.google.protobuf.Any;
import com.google.protobuf.Duration;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.rpc.ErrorInfo;
import com.google.rpc.RetryInfo;
import dev.taskraft.v1.CloseSessionRequest;
import dev.taskraft.v1.Error;
import dev.taskraft.v1.ItemError;
import dev.taskraft.v1.PutTasksRequest;
import dev.taskraft.v1.PutTasksResponse;
import dev.taskraft.v1.SessionServiceGrpc;
import dev.taskraft.v1.SettleTasksRequest;
import dev.taskraft.v1.SettleTasksResponse;
import dev.taskraft.v1.Settlement;
import dev.taskraft.v1.SubscribeRequest;
import dev.taskraft.v1.SubscribeResponse;
import dev.taskraft.v1.TakeSource;
import dev.taskraft.v1.TakeTasksRequest;
import dev.taskraft.v1.TakeTasksResponse;
import dev.taskraft.v1.Task;
import dev.taskraft.v1.TaskServiceGrpc;
import io.grpc.Channel;
import io.grpc.ChannelCredentials;
import io.grpc.ClientInterceptors;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.TlsChannelCredentials;
import io.grpc.protobuf.StatusProto;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientResponseObserver;
import io.grpc.stub.MetadataUtils;
import java.io.File;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Function;

/** Calls one node at a time, and goes to the next node when a connection is lost. */
public final class Client implements AutoCloseable {
  private static final long ATTEMPT_MS = 5_000;
  private static final long CALL_MS = 20_000;
  private static final long PAUSE_MS = 50;
  private static final long PAUSE_MS_MAX = 1_000;

  /** Usual time in ms for which leases outlive a lost stream. */
  public static final long SESSION_TTR_MS = 10_000;

  /** Reasons of Settled.error after which the same message can succeed. */
  private static final Set<Error.Reason> SETTLED_AGAIN =
      Set.of(
          Error.Reason.OVERLOADED,
          Error.Reason.DRAINING,
          Error.Reason.NO_LEADER,
          Error.Reason.NOT_LEADER,
          Error.Reason.COMMIT_UNKNOWN);

  private static final long SETTLED_PAUSE_MS = 200;

  private final List<ManagedChannel> channels = new ArrayList<>();
  private final Metadata headers = new Metadata();
  private int place;

  /**
   * Connects to the nodes of TASKRAFT_TARGET. TASKRAFT_CA_FILE turns TLS on; TASKRAFT_TOKEN is the token of the
   * principal.
   */
  public Client() throws IOException {
    String authority = System.getenv("TASKRAFT_CA_FILE");
    ChannelCredentials credentials =
        authority == null
            ? InsecureChannelCredentials.create()
            : TlsChannelCredentials.newBuilder().trustManager(new File(authority)).build();
    for (String address : System.getenv().getOrDefault("TASKRAFT_TARGET", "127.0.0.1:7401").split(",")) {
      channels.add(
          Grpc.newChannelBuilder(address, credentials)
              .maxInboundMessageSize(32 << 20)
              // A silent stream lives as long as its connection; pings find a lost connection.
              .keepAliveTime(20, TimeUnit.SECONDS)
              .keepAliveTimeout(5, TimeUnit.SECONDS)
              .build());
    }
    String token = System.getenv("TASKRAFT_TOKEN");
    if (token != null) {
      headers.put(Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER), "Bearer " + token);
    }
  }

  @Override
  public void close() {
    channels.forEach(ManagedChannel::shutdownNow);
  }

  /** An error of the server: the gRPC code, and the reason and its variables for programs. */
  public static final class Refusal extends RuntimeException {
    public final String code;
    public final String reason;
    public final Map<String, String> metadata;

    /** Wait of the server before a retry, in ms; 0: a retry cannot succeed. */
    final long retryMs;

    private Refusal(StatusRuntimeException error, ErrorInfo info, long retryMs) {
      super(error.getStatus().getDescription(), error);
      this.code = error.getStatus().getCode().name();
      this.reason = info.getReason();
      this.metadata = info.getMetadataMap();
      this.retryMs = retryMs;
    }

    /** A message on a stream that was refused as a whole. */
    private Refusal(Error error) {
      super(error.getMessage());
      this.code = "";
      this.reason = error.getReason().name();
      this.metadata = error.getMetadataMap();
      this.retryMs = 0;
    }

    /** Reads the ErrorInfo of a failed call. A lost connection has no ErrorInfo, so its reason is empty. */
    static Refusal of(StatusRuntimeException error) {
      com.google.rpc.Status status = StatusProto.fromThrowable(error);
      ErrorInfo info = ErrorInfo.getDefaultInstance();
      long retryMs = 0;
      try {
        for (Any detail : status == null ? List.<Any>of() : status.getDetailsList()) {
          if (detail.is(ErrorInfo.class)) {
            info = detail.unpack(ErrorInfo.class);
          } else if (detail.is(RetryInfo.class)) {
            Duration delay = detail.unpack(RetryInfo.class).getRetryDelay();
            retryMs = delay.getSeconds() * 1_000 + delay.getNanos() / 1_000_000;
          }
        }
      } catch (InvalidProtocolBufferException malformed) {
        error.addSuppressed(malformed);
      }
      return new Refusal(error, info, retryMs);
    }
  }

  /**
   * Returns the wait of the server, or a pause that doubles with each failure. The random part keeps clients from
   * calling a restarted cluster at the same time.
   *
   * @param refusal why the call failed; null: unknown
   */
  private static long pauseMs(Refusal refusal, int failures) {
    if (refusal != null && refusal.retryMs > 0) {
      return refusal.retryMs;
    }
    long longest = Math.min(PAUSE_MS_MAX, PAUSE_MS << Math.min(failures, 8));
    return longest / 2 + ThreadLocalRandom.current().nextLong(longest / 2);
  }

  private synchronized ManagedChannel node() {
    return channels.get(place % channels.size());
  }

  /** Makes the next call use another node, unless another call has left this node already. */
  private synchronized void leave(ManagedChannel node) {
    if (node == node()) {
      place++;
      // Without this, the library waits up to two minutes before it connects again.
      node().resetConnectBackoff();
    }
  }

  private Channel authenticated(ManagedChannel node) {
    return ClientInterceptors.intercept(node, MetadataUtils.newAttachHeadersInterceptor(headers));
  }

  /** Returns an idempotency key. A retry sends the same key, so the request has one effect. */
  private static String newRequestId() {
    return UUID.randomUUID().toString();
  }

  /**
   * Executes one request. UNAVAILABLE and a time-out do not tell whether the request was executed, so they are
   * retried with the same request_id, on another node.
   */
  private <A> A call(long waitMs, Function<Channel, A> method) throws InterruptedException {
    long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(CALL_MS + waitMs);
    for (int failures = 0; ; failures++) {
      ManagedChannel node = node();
      try {
        return method.apply(authenticated(node));
      } catch (StatusRuntimeException error) {
        Refusal refusal = Refusal.of(error);
        if (!mayRetry(error.getStatus().getCode(), refusal) || System.nanoTime() > end) {
          throw refusal;
        }
        leave(node);
        Thread.sleep(pauseMs(refusal, failures));
      }
    }
  }

  /**
   * Returns whether a failure does not tell if the request was executed, or the server asks for a retry. grpc-java
   * reports a connection that closes while a call starts as UNKNOWN; each refusal of the server has a reason.
   */
  private static boolean mayRetry(Status.Code code, Refusal refusal) {
    return code == Status.Code.UNAVAILABLE
        || code == Status.Code.DEADLINE_EXCEEDED
        || refusal.retryMs > 0
        || code == Status.Code.UNKNOWN && refusal.reason.isEmpty();
  }

  private static TaskServiceGrpc.TaskServiceBlockingStub tasks(Channel channel, long waitMs) {
    return TaskServiceGrpc.newBlockingStub(channel).withDeadlineAfter(ATTEMPT_MS + waitMs, TimeUnit.MILLISECONDS);
  }

  /** Puts tasks. A request without a request_id gets a random one. */
  public PutTasksResponse put(PutTasksRequest request) throws InterruptedException {
    PutTasksRequest keyed =
        request.getRequestId().isEmpty() ? request.toBuilder().setRequestId(newRequestId()).build() : request;
    return call(0, channel -> tasks(channel, 0).putTasks(keyed));
  }

  /** Takes tasks, and waits for the first one as long as the request says. */
  public TakeTasksResponse take(TakeTasksRequest request) throws InterruptedException {
    TakeTasksRequest keyed = request.toBuilder().setRequestId(newRequestId()).build();
    return call(request.getWaitMs(), channel -> tasks(channel, request.getWaitMs()).takeTasks(keyed));
  }

  /**
   * Settles leases; the answer lists the refused leases. LEASE_STALE means that another consumer may have the task
   * now, so its result must not be used.
   */
  public SettleTasksResponse settle(Settlement settlement) throws InterruptedException {
    SettleTasksRequest request =
        SettleTasksRequest.newBuilder().setRequestId(newRequestId()).addSettlements(settlement).build();
    return call(0, channel -> tasks(channel, 0).settleTasks(request));
  }

  /**
   * Opens a subscription; the server sends at most {@code credit} tasks that are not settled. The leases outlive a
   * lost stream for {@code sessionTtrMs}.
   */
  public Subscription subscribe(String tube, int credit, long sessionTtrMs) {
    Subscription subscription = new Subscription(tube, credit, sessionTtrMs);
    subscription.open();
    return subscription;
  }

  /** Takes tasks from a stream. A lost stream is opened again with its session, so that the leases stay valid. */
  public final class Subscription {
    private record Unanswered(SubscribeRequest message, CompletableFuture<List<ItemError>> answer) {}

    private final String tube;
    private final long sessionTtrMs;
    /** Comes after the last task of a stream that has ended for good. */
    private static final Task END = Task.newBuilder().setId(-1).build();
    private final LinkedBlockingQueue<Task> tasks = new LinkedBlockingQueue<>();
    /** Tokens of the tasks that were sent, and whether a further task was allowed. */
    private final Map<Long, Boolean> held = new HashMap<>();
    private final Map<String, Unanswered> unanswered = new LinkedHashMap<>();
    /** Number of tasks that the server may still send. */
    private int credit;
    private String session = "";
    private int failures;
    private boolean isClosed;
    /** Why the stream has ended for good; set before END comes. */
    private volatile Refusal refusal;
    private ClientCallStreamObserver<SubscribeRequest> stream;
    private boolean isOpen;

    private Subscription(String tube, int credit, long sessionTtrMs) {
      this.tube = tube;
      this.credit = credit;
      this.sessionTtrMs = sessionTtrMs;
    }

    private synchronized void open() {
      if (isClosed) {
        return;
      }
      ManagedChannel node = node();
      TaskServiceGrpc.newStub(authenticated(node)).subscribe(new Reader(node));
      SubscribeRequest.Open.Builder open =
          SubscribeRequest.Open.newBuilder()
              .addSources(TakeSource.newBuilder().setTube(tube))
              .setSessionId(session)
              .setSessionTtrMs(sessionTtrMs);
      // The credit follows when the stream is open: if this message or its answer is lost, no task is lost with it.
      stream.onNext(SubscribeRequest.newBuilder().setOpen(open).build());
    }

    /**
     * Releases the tasks that were in transit when a stream was cut, allows the tasks that the server may still send,
     * and repeats the settlements without an answer. A long list of tasks comes in several messages.
     */
    private void resume(SubscribeResponse.Opened opened) {
      session = opened.getSessionId();
      failures = 0;
      isOpen = true;
      List<Long> lost =
          opened.getHeldList().stream().map(Task::getToken).filter(token -> !held.containsKey(token)).toList();
      if (!lost.isEmpty()) {
        Settlement.Release release = Settlement.Release.newBuilder().setDelayMs(0).setUncounted(true).build();
        keep(Settlement.newBuilder().addAllTokens(lost).setRelease(release).build());
      }
      if (opened.getHeldContinues()) {
        return;
      }
      if (credit > 0) {
        send(creditMessage(credit));
      }
      unanswered.values().forEach(each -> send(each.message));
    }

    /** Returns a message that is repeated until it is answered. With the idempotency key, it has one effect. */
    private Unanswered keep(Settlement settlement) {
      String key = newRequestId();
      SubscribeRequest message =
          SubscribeRequest.newBuilder().setRequestId(key).setIdempotencyKey(key).addSettlements(settlement).build();
      Unanswered kept = new Unanswered(message, new CompletableFuture<>());
      unanswered.put(key, kept);
      return kept;
    }

    private void send(SubscribeRequest message) {
      if (isOpen) {
        try {
          stream.onNext(message);
        } catch (IllegalStateException ended) {
          // The next stream sends the credit and the settlements again.
        }
      }
    }

    private synchronized void sendAgain(Unanswered kept) {
      if (unanswered.containsKey(kept.message.getRequestId())) {
        send(kept.message);
      }
    }

    private SubscribeRequest creditMessage(int tasks) {
      return SubscribeRequest.newBuilder().setCredit(SubscribeRequest.Credit.newBuilder().setTasks(tasks)).build();
    }

    private void settled(SubscribeResponse.Settled settled) {
      Unanswered found = unanswered.get(settled.getRequestId());
      if (found == null) {
        return;
      }
      if (SETTLED_AGAIN.contains(settled.getError().getReason())) {
        after(SETTLED_PAUSE_MS, () -> sendAgain(found));
        return;
      }
      unanswered.remove(settled.getRequestId());
      if (settled.hasError()) {
        // The message was refused as a whole: the tasks are still leased.
        found.answer.completeExceptionally(new Refusal(settled.getError()));
        return;
      }
      held.keySet().removeAll(found.message.getSettlements(0).getTokensList());
      found.answer.complete(settled.getErrorsList());
    }

    private void after(long delayMs, Runnable action) {
      CompletableFuture.delayedExecutor(delayMs, TimeUnit.MILLISECONDS).execute(action);
    }

    private final class Reader implements ClientResponseObserver<SubscribeRequest, SubscribeResponse> {
      private final ManagedChannel node;

      private Reader(ManagedChannel node) {
        this.node = node;
      }

      @Override
      public void beforeStart(ClientCallStreamObserver<SubscribeRequest> requests) {
        stream = requests;
      }

      @Override
      public void onNext(SubscribeResponse answer) {
        synchronized (Subscription.this) {
          if (answer.hasOpened()) {
            resume(answer.getOpened());
          }
          credit -= answer.getTasksCount();
          answer.getTasksList().forEach(task -> held.put(task.getToken(), false));
          answer.getSettledList().forEach(Subscription.this::settled);
          tasks.addAll(answer.getTasksList());
        }
      }

      @Override
      public void onError(Throwable error) {
        Refusal found = error instanceof StatusRuntimeException failed ? Refusal.of(failed) : null;
        synchronized (Subscription.this) {
          isOpen = false;
          if (found != null && found.reason.equals("SESSION_NOT_FOUND")) {
            forgetSession();
          } else if (found != null && !found.reason.isEmpty() && found.retryMs == 0) {
            // A new stream would be refused too, for example because all tubes of the stream were dropped.
            refusal = found;
            tasks.add(END);
            return;
          }
          // The server said go_away, or the connection is lost: go on with another node.
          leave(node);
          after(pauseMs(found, failures), Subscription.this::open);
          failures++;
        }
      }

      @Override
      public void onCompleted() {
        onError(null);
      }
    }

    /** Drops the tasks that nobody works on: their leases have ended, and other consumers get them. */
    private void forgetSession() {
      session = "";
      List<Task> dropped = new ArrayList<>();
      tasks.drainTo(dropped);
      dropped.forEach(task -> held.remove(task.getToken()));
      credit += dropped.size();
    }

    /** Returns the next task, or null after the time; throws a Refusal, for example if the tube was dropped. */
    public Task next(long waitMs) throws InterruptedException {
      Task task = tasks.poll(waitMs, TimeUnit.MILLISECONDS);
      if (task == END) {
        tasks.add(END);
        throw refusal;
      }
      return task;
    }

    /**
     * Acknowledges tasks on the stream, allows as many further tasks, and returns the refused leases; throws a Refusal
     * if the whole message was refused.
     */
    public List<ItemError> acknowledge(List<Long> tokens)
        throws InterruptedException, ExecutionException, TimeoutException {
      Unanswered kept;
      synchronized (this) {
        kept = keep(Settlement.newBuilder().addAllTokens(tokens).setAck(Settlement.Ack.getDefaultInstance()).build());
        send(kept.message);
        int allowed = 0;
        for (Long token : tokens) {
          // Each task allows one further task, also if it is settled twice.
          if (held.replace(token, false, true)) {
            allowed++;
          }
        }
        credit += allowed;
        if (allowed > 0) {
          send(creditMessage(allowed));
        }
      }
      try {
        return kept.answer.get(CALL_MS, TimeUnit.MILLISECONDS);
      } catch (ExecutionException failed) {
        if (failed.getCause() instanceof Refusal refused) {
          throw refused;
        }
        throw failed;
      } finally {
        synchronized (this) {
          unanswered.remove(kept.message.getRequestId());
        }
      }
    }

    /** Ends the stream and its session; tasks that are still leased go to other consumers at once. */
    public void close() throws InterruptedException {
      synchronized (this) {
        isClosed = true;
        stream.cancel("closed", null);
      }
      if (!session.isEmpty()) {
        CloseSessionRequest request =
            CloseSessionRequest.newBuilder()
                .setRequestId(newRequestId())
                .setSessionId(session)
                .setUncounted(true)
                .build();
        call(
            0,
            channel ->
                SessionServiceGrpc.newBlockingStub(channel)
                    .withDeadlineAfter(ATTEMPT_MS, TimeUnit.MILLISECONDS)
                    .closeSession(request));
      }
    }
  }
}
